"""Grids in plain Python, for comparison with what runs under jit."""

from collections import deque


def neighbours(size: int, holes, cell: int) -> list[int]:
    """Return the free cells beside a cell of an unpadded board, in the order of ``Action``."""
    row, column = divmod(cell, size)
    beside = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
    return [r * size + c for r, c in beside if 0 <= r < size and 0 <= c < size and not holes[r * size + c]]


def shortest_paths(size: int, holes, start: int) -> dict[int, int]:
    """Return the steps from a cell to each cell that can be reached."""
    steps, queue = {start: 0}, deque([start])
    while queue:
        cell = queue.popleft()
        for other in neighbours(size, holes, cell):
            if other not in steps:
                steps[other] = steps[cell] + 1
                queue.append(other)
    return steps
