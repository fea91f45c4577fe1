"""The gallery of mutations, read back from its panels."""

import numpy as np

from rhumbline.plots.gallery import draw_mutations
from rhumbline.problems.distributions.mutations import OPERATORS, mutate

POINTS = np.random.default_rng(0).random((40, 2))


def test_every_mutation_has_a_panel_with_its_points() -> None:
    """There are ten panels. In each, the dots and the crosses together are the mutated instance."""
    panels = draw_mutations(POINTS, 0.5, seed=3).axes
    assert [p.get_title() for p in panels] == ["uniform", *OPERATORS]
    for operator, panel in zip(OPERATORS, panels[1:], strict=True):
        mutant = mutate(POINTS, operator, 0.5, np.random.default_rng(3))
        left, stay, moved = (
            np.asarray(dots.get_offsets()).reshape(-1, 2) for dots in panel.collections
        )
        assert len(left) == len(moved) == (mutant != POINTS).any(axis=1).sum()
        np.testing.assert_array_equal(
            np.sort(np.concatenate([stay, moved]), axis=0), np.sort(mutant, axis=0)
        )
