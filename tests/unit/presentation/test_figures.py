"""Figures of pages: small, and drawn as they were."""


def test_bands_and_markers_keep_their_fill():
    """A path that is used has the fill of its use, unless it has one of its own."""
    from bonafed.presentation.figures import sheet
    from bonafed.presentation.page_pictures import compact_svg

    figure = sheet(3, 2)
    axes = figure.subplots()
    axes.fill_between([0, 1], [0, 0], [1, 2], color="#123456", alpha=0.2)
    axes.scatter([0.5], [0.5], color="#654321")
    text = compact_svg(figure)
    assert "fill:#123456" in text
    assert "fill-opacity:0.2" in text
    assert "fill:#654321" in text
