"""Figures and widgets: each `x_view` turns data into a picture, each `x_widget` puts knobs to it."""
