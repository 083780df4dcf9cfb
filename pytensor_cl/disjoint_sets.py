"""Disjoint sets of hashable things (union-find)."""

from collections.abc import Hashable


class DisjointSets[Member: Hashable]:
    """Disjoint sets; a thing that was not joined with another one is a set of its own."""

    def __init__(self) -> None:
        self._parent: dict[Member, Member] = {}

    def root(self, member: Member) -> Member:
        """Return the thing that stands for the set of `member`."""
        parent = self._parent
        while member in parent:
            above = parent[member]
            if above in parent:
                parent[member] = parent[above]
            member = above
        return member

    def join(self, first: Member, second: Member) -> None:
        """Unite two sets; what stood for the set of `first` stands for both."""
        first, second = self.root(first), self.root(second)
        if first != second:
            self._parent[second] = first
