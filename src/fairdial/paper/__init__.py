"""The paper's comparison methods, presets and features."""
