"""The files of the page: one that needs nothing else, and those that a server gives."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace

import pytest

from fairdial.serve import page
from fairdial.serve.page import page_files, render_index, render_page, write_page
from fairdial.serve.page_data import page_data


@pytest.fixture(scope="module")
def document(two_groups):
    return page_data(replace(two_groups, certificate="none"), name="Loans & <more>")


@pytest.fixture(scope="module")
def text(document):
    return render_page(document)


def test_the_exported_page_needs_no_other_file(text):
    body = re.sub(r"<script.*?</script>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    links = re.findall(r"(?:src|href|action)=\"([^\"]*)\"", body)
    assert [link for link in links if not link.startswith("data:image/svg+xml;base64,")] == []
    assert "@import" not in text
    assert not re.search(r"url\((?!data:)", text)


def test_the_exported_page_contains_the_document(text, document):
    (block,) = re.findall(r'<script type="application/json" id="document">(.*?)</script>', text)
    assert json.loads(block) == document
    assert "<title>Loans &amp; &lt;more&gt;</title>" in text


def test_the_exported_page_allows_only_its_own_scripts_and_styles(text):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for kind in ("script", "style"):
        blocks = re.findall(rf"<{kind}>(.*?)</{kind}>", text, flags=re.DOTALL)
        assert blocks
        for block in blocks:
            digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy


def test_the_exported_page_contains_the_license_of_uplot(text):
    assert "The MIT License" in text
    assert "Leon Sorokin" in text


def test_the_served_page_names_only_existing_files():
    named = re.findall(r"(?:src|href)=\"([^\"]*)\"", render_index())
    assert named
    assert {name.removeprefix("static/") for name in named} <= set(page_files())


def test_no_file_of_the_page_needs_a_looser_policy():
    index = render_index()
    assert not re.search(r"\son\w+=|\sstyle=|<script>|<style", index)
    ours = [
        name for name in page_files() if not name.startswith("vendor/") and name.endswith(".js")
    ]
    for name in ours:
        code = page_files()[name].content.decode()
        assert not re.search(r"innerHTML|\beval\(|new Function|localStorage|sessionStorage", code)


def test_files_say_what_they_are():
    assert {file.media_type.partition(";")[0] for file in page_files().values()} == {
        "text/css",
        "text/javascript",
        "image/svg+xml",
    }


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch, two_groups):
    frontier = replace(two_groups, certificate="none")
    path = tmp_path / "dial.html"
    assert write_page(frontier, path, name="first") == path
    before = path.read_bytes()

    def broken(_):
        raise RuntimeError("half way")

    monkeypatch.setattr(page, "render_page", broken)
    with pytest.raises(RuntimeError, match="half way"):
        write_page(frontier, path, name="second")
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["dial.html"]


def test_the_same_model_gives_the_same_file(tmp_path, two_groups):
    frontier = replace(two_groups, certificate="none")
    first, second = (write_page(frontier, tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first == second
