"""Heat maps of a latent space of two dimensions, from the files of `tools.figures.latent_maps`."""

from pathlib import Path

from matplotlib.figure import Figure

from rhumbline.bench.figures.landscape import read_landscapes
from rhumbline.plots.latent import Landscape, draw_landscapes
from tools.figures.data import EVOLUTION, INSTANCES
from tools.figures.style import Palette, new_figure, recolour, write_missing


def draw_first(palette: Palette) -> Figure:
    """Draw the map of the first instance."""
    return draw_maps(read_maps(INSTANCES.path)[:1], palette)


def draw_eight(palette: Palette) -> Figure:
    """Draw the maps of eight instances."""
    return draw_maps(read_maps(INSTANCES.path)[:8], palette)


def draw_evolution(palette: Palette) -> Figure:
    """Draw the map of one instance for successive checkpoints of one run."""
    return draw_maps(read_maps(EVOLUTION.path), palette)


def read_maps(path: Path) -> list[Landscape]:
    """Return the landscapes of a file; an empty list if the file does not exist."""
    return read_landscapes(path) if path.exists() else []


def draw_maps(maps: list[Landscape], palette: Palette) -> Figure:
    """Draw landscapes, or a panel that says that nothing is measured."""
    if not maps:
        figure, (axes,) = new_figure((7.4, 3.0), 1, palette)
        write_missing(axes, palette)
        return figure
    figure = recolour(draw_landscapes(maps), palette)
    for axes in figure.axes:
        if axes.images:
            axes.set_facecolor(palette.grid)  # around the grid, where there are no costs
    return figure
