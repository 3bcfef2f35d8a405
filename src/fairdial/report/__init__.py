"""Audit reports: facts about a model and its decisions, and their drawing as HTML and PDF."""

from __future__ import annotations

from fairdial.report.facts import Rows, report_data
from fairdial.report.html import render_report
from fairdial.report.write import write_report

__all__ = ["Rows", "render_report", "report_data", "write_report"]
