"""Matrix products in tiles whose sums are in registers (``kernels/gemm/simt_double_buffered.mako``)."""

import re
from dataclasses import replace

import numpy as np
import pytest

from pytensor_cl.routines.elemwise.epilogue import Epilogue
from pytensor_cl.routines.gemm import schedule_simt
from pytensor_cl.routines.gemm.limits import SIMT_FORMS, SIMT_LARGE_TILES
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.routines.gemm.schedule_simt import GemmShape, large_tiles, runs_large, select_tile
from tests.routines.elemwise.test_epilogue import Function
from tests.routines.elemwise.test_epilogue import check as check_epilogue
from tests.routines.gemm.test_gemm import PLACEMENTS
from tests.routines.products import check, draw

TILES = {
    f"{name.partition(',')[0]}-{tile.rows}-{tile.columns}-{tile.slices}-{tile.fragments}": (name, number)
    for name, tiles in SIMT_LARGE_TILES.items()
    for number, tile in enumerate(tiles)
    if name != "matrix"
}
INSTRUCTIONS = [(k, number) for k in (8, 4) for number in range(len(SIMT_LARGE_TILES["matrix"]))]

# The two instructions, as the reference of PTX describes them, by work-items that exchange their fragments.
EMULATION = """
#define KEEP(A0, A1, A2, A3, B0, B1) \\
    kept[item][0] = A0; kept[item][1] = A1; kept[item][2] = A2; kept[item][3] = A3; \\
    kept[item][4] = B0; kept[item][5] = B1; barrier(CLK_LOCAL_MEM_FENCE);
#define ROW(R, X, Y) \\
    for (int k = 0; k < DEPTH; k++) { \\
        const double left = kept[item / 32 * 32 + item % 32 / 4 * 4 + k % 4][k / 4 * 2 + R]; \\
        X += left * kept[item / 32 * 32 + item % 4 * 2 * 4 + k % 4][4 + k / 4]; \\
        Y += left * kept[item / 32 * 32 + (item % 4 * 2 + 1) * 4 + k % 4][4 + k / 4]; \\
    }
#define MMA_8(C0, C1, C2, C3, A0, A1, A2, A3, B0, B1) \\
    { KEEP(A0, A1, A2, A3, B0, B1) ROW(0, C0, C1) ROW(1, C2, C3) barrier(CLK_LOCAL_MEM_FENCE); }
#define MMA_4(C0, C1, A0, B0) \\
    { KEEP(A0, 0, 0, 0, B0, 0) ROW(0, C0, C1) barrier(CLK_LOCAL_MEM_FENCE); }
"""


def emulated(source):
    """The source with functions in the place of instructions for matrices."""

    def call(found):
        operands = re.findall(r'"\+?d"\((\w+)\)', found[0])
        return f"MMA_{found[1]}({', '.join(operands)});"

    text, count = re.subn(
        r"__asm__ volatile\(\s*\"mma\.sync\.aligned\.m\d+n8k(\d)\.row\.col[^;]*;[^;]*;", call, source.source
    )
    assert count
    depth = 8 if "MMA_8" in text else 4
    text = re.sub(r"(__local double space\[.*)", r"\1\n    __local double kept[512][6];", text)
    return source._replace(source=f"#define DEPTH {depth}\n{EMULATION}{text}")


def force(monkeypatch, dtype, number, matrix=0, parts=1):
    """Let every product run one of the tiles; `dtype`: name of the dtype in `SIMT_LARGE_TILES`."""
    name, _, registers = dtype.partition(", ")
    tiles = large_tiles(np.dtype(name), matrix, has_many_registers=bool(registers))
    tile = tiles[number][0]._replace(split_k=parts)
    monkeypatch.setattr(Gemm, "_work_group_tile", lambda *_: tile)
    return tile


def need(context, dtype="float64"):
    if not context.info.has_large_tiles or context.info.max_work_group_size < 256:
        pytest.skip(f"{context.info.name}: no tiles that fill the registers of a GPU")
    if dtype == "float64" and not context.info.has_fp64:
        pytest.skip(f"{context.info.name}: no float64")


def sizes(tile):
    return (
        (tile.rows, tile.step, tile.columns),
        (tile.rows + 1, 3 * tile.step + 1, tile.columns + 4),
        (2 * tile.rows - 4, tile.step - 1, 2 * tile.columns - 1),
        (5, 2 * tile.step + 4, 3),
        (4, 0, 8),
    )


@pytest.mark.parametrize(("dtype", "number"), TILES.values(), ids=TILES)
def test_tiles(context, rng, monkeypatch, dtype, number):
    need(context, dtype)
    tile, dtype = force(monkeypatch, dtype, number), dtype.partition(",")[0]
    routine = Gemm(context, dtype, schedule="simt")
    for m, k, n in sizes(tile):
        a, b = draw(rng, dtype, m, k), draw(rng, dtype, k, n)
        places = [*PLACEMENTS.values()]
        for place_a, place_b in zip(places, [*places[1:], places[0]], strict=True):
            if k or place_a is places[0]:
                check(routine(place_a(context, a), place_b(context, b))[0], 1, a, b)
    a, b = draw(rng, dtype, tile.rows, 40), draw(rng, dtype, 40, tile.columns)
    for first in (1, 2):  # elements that do not begin at a multiple of 16 bytes
        (got,) = routine(context.from_host(a)[:, first:], context.from_host(b)[first:])
        check(got, 1, a[:, first:], b[first:])
    (got,) = routine(*map(context.from_host, (a, b)))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(routine(*map(context.from_host, (a, b)))[0]))


@pytest.mark.parametrize(("dtype", "number"), TILES.values(), ids=TILES)
def test_scalars_and_an_addend(context, rng, monkeypatch, dtype, number):
    need(context, dtype)
    tile, dtype = force(monkeypatch, dtype, number), dtype.partition(",")[0]
    routine, scalar = Gemm(context, dtype, has_c=True, schedule="simt"), np.dtype(dtype).type
    m, k, n = tile.rows + 3, tile.step + 2, tile.columns + 1
    c, a, b = draw(rng, dtype, m, n), draw(rng, dtype, m, k), draw(rng, dtype, k, n)
    inputs = [context.from_host(x) for x in (c, a, b)]
    check(routine(inputs[0], scalar(2), *inputs[1:], scalar(3))[0], 2, a, b, 3, c)
    out = context.from_host(np.full((m + 2, n + 3), 7, dtype))
    routine.launch((out[1:-1, 2:-1],), (inputs[0], scalar(2), *inputs[1:], scalar(3)))
    got = np.asarray(out)
    check(got[1:-1, 2:-1], 2, a, b, 3, c)
    got[1:-1, 2:-1] = 7
    assert (got == 7).all()


@pytest.mark.parametrize(("dtype", "number"), TILES.values(), ids=TILES)
def test_split_sums(context, rng, monkeypatch, dtype, number):
    need(context, dtype)
    tile, dtype = force(monkeypatch, dtype, number, parts=3), dtype.partition(",")[0]
    routine = Gemm(context, dtype, schedule="simt")
    for n in (tile.columns, tile.columns + 1):
        a, b = draw(rng, dtype, tile.rows - 1, 5 * tile.step + 3), draw(rng, dtype, 5 * tile.step + 3, n)
        check(routine(*map(context.from_host, (a, b)))[0], 1, a, b)
    assert all(plan.passes.final is not None for plan in routine._plans._plans.values())


@pytest.mark.parametrize("form", [2, 5, 6])
def test_forms_of_the_largest_tile(context, rng, monkeypatch, form):
    need(context)
    monkeypatch.setitem(context.tuning, "gemm.form", form)
    rows, columns, step, item_rows, fragments, _ = SIMT_FORMS[form]
    routine = Gemm(context, "float32", has_c=True, schedule="simt")
    tile = routine._work_group_tile(GemmShape(1024, 1024, 1024, ()))
    found = (tile.rows, tile.columns, tile.item_rows, tile.fragments, tile.split_k)
    assert found == (rows, columns, item_rows, fragments, 1)
    monkeypatch.setattr(Gemm, "_work_group_tile", lambda *_: tile)
    for m, k, n in ((rows, 2 * step, columns), (rows + 5, 3 * step + 1, columns - 3), (3, step - 1, 4), (4, 0, 4)):
        c, a, b = draw(rng, "float32", m, n), draw(rng, "float32", m, k), draw(rng, "float32", k, n)
        for order in "CF":
            inputs = [context.from_host(np.asarray(x, order=order)) for x in (c, a, b)]
            (got,) = routine(inputs[0], np.float32(2), *inputs[1:], np.float32(3))
            check(got, 2, a, b, 3, c)
    ((kernel, _),) = {(s, i) for s, i in routine._sources}
    assert kernel.fragments == fragments


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batches(context, rng, monkeypatch, dtype):
    need(context, dtype)
    tile = force(monkeypatch, dtype, 1)
    a, b = draw(rng, dtype, 3, 2, tile.rows + 2, 40), draw(rng, dtype, 2, 40, tile.columns + 1)
    (got,) = BatchedGemm(context, dtype, schedule="simt")(context.from_host(a), context.from_host(b))
    check(got, 1, a, b)


@pytest.mark.parametrize(("dtype", "number"), TILES.values(), ids=TILES)
def test_epilogues(context, rng, monkeypatch, dtype, number):
    need(context, dtype)
    tile, dtype = force(monkeypatch, dtype, number), dtype.partition(",")[0]
    function = Function(dtype, (dtype, dtype), (dtype, "bool"))
    shapes = ((False, False), (True, False), (False, True))
    epilogue = Epilogue(context, function, shapes, "simt")
    routine = Gemm(context, dtype, schedule="simt", epilogue=epilogue)
    for m, k, n in ((tile.rows, 20, tile.columns), (tile.rows + 1, 9, tile.columns + 2)):
        a, b, row, column = (draw(rng, dtype, *s) for s in ((m, k), (k, n), (1, n), (m, 1)))
        outputs = routine(*map(context.from_host, (a, b, row, column)))
        check_epilogue(routine, (a.astype("float64") @ b, row, column), outputs)
    assert not any(plan.is_unfused for plan in routine._plans._plans.values())


def test_many_batch_dimensions(context, rng, monkeypatch):
    """Batch dimensions beyond four are launches of their own, which add to C in place once each."""
    need(context, "float32")
    tile = force(monkeypatch, "float32", 3)
    lengths = (2, 3, 2, 3, 2)
    a, b, c = (draw(rng, "float32", *(2 * n for n in lengths), *s) for s in ((9, 5), (5, 7), (9, 7)))
    every = (slice(None, None, 2),) * 5
    operands = [context.from_host(x)[every] for x in (c, a, b)]
    routine = BatchedGemm(context, "float32", has_c=True, schedule="simt")
    routine.launch(operands[:1], (operands[0], np.float32(1), *operands[1:], np.float32(1)))
    np.testing.assert_allclose(np.asarray(operands[0]), a[every] @ b[every] + c[every], rtol=1e-5, atol=1e-5)
    (plan,) = routine._plans._plans.values()
    assert len(plan.arguments) > 1 and tile.is_large


def test_long_indices(context, rng, monkeypatch):
    need(context, "float32")
    force(monkeypatch, "float32", 1)
    monkeypatch.setattr("pytensor_cl.routines.gemm.routine.index_type", lambda _: "long")
    a, b = draw(rng, "float32", 130, 40), draw(rng, "float32", 40, 70)
    check(Gemm(context, "float32", schedule="simt")(*map(context.from_host, (a, b)))[0], 1, a, b)


@pytest.mark.parametrize(("matrix", "number"), INSTRUCTIONS)
def test_instructions_for_matrices(context, rng, monkeypatch, matrix, number):
    need(context)
    has_instructions = context.info.features.matrix_f64 > 0
    tile = force(monkeypatch, "float64", number, matrix)
    plain = Gemm._source
    if not has_instructions:
        monkeypatch.setattr(Gemm, "_source", lambda *arguments: emulated(plain(*arguments)))
    routine = Gemm(context, "float64", schedule="simt")
    for m, k, n in sizes(tile):
        a, b = draw(rng, "float64", m, k), draw(rng, "float64", k, n)
        check(routine(*map(context.from_host, (a, b)))[0], 1, a, b)
    a, b = draw(rng, "float64", 40, tile.rows).T, draw(rng, "float64", tile.columns, 40).T
    check(routine(*(PLACEMENTS["columns"](context, x) for x in (a, b)))[0], 1, a, b)


def test_choice(context):
    info = replace(
        context.info, kind="gpu", compute_units=132, max_work_group_size=1024, local_memory=49152,
        features=replace(context.info.features, matrix_f64=0),
    )  # fmt: skip
    wanted = {
        (2048, 2048, 2048): (128, 128, 1),
        (80000, 64, 64): (128, 64, 1),
        (1024, 512, 784): (32, 64, 1),
        (1024, 10, 256): (32, 64, 1),
        (256, 10, 1024): (32, 64, 4),
        (64, 64, 80_000): (64, 64, 256),
    }
    for (m, n, k), what in wanted.items():
        tile = select_tile(GemmShape(m, n, k, ()), info, np.dtype("float32"), 16)
        assert (tile.rows, tile.columns, tile.split_k) == what, (m, n, k)
    split = GemmShape(128, 256, 768, ())  # whose epilogue would be one more launch
    assert select_tile(split, info, np.dtype("float32"), 16).split_k > 1
    assert select_tile(split, info, np.dtype("float32"), 16, 2).split_k == 1
    batched = GemmShape(128, 128, 128, (256,))
    tile = select_tile(batched, info, np.dtype("float32"), 16)
    assert (tile.rows, tile.columns, tile.split_k) == (128, 128, 1)
    shape = GemmShape(2048, 2048, 2048, ())
    assert select_tile(shape, info, np.dtype("float64"), 16)[3:9] == (128, 64, 1, 0, 1, 0)
    instructions = replace(info, features=replace(info.features, matrix_f64=8))
    assert select_tile(shape, instructions, np.dtype("float64"), 16).matrix == 8
    assert select_tile(shape, instructions, np.dtype("float32"), 16).matrix == 0
    assert select_tile(shape, info, np.dtype("int32"), 16).template == "gemm/simt"
    for poor in (replace(info, local_memory=16384), replace(info, max_work_group_size=128)):
        assert select_tile(shape, poor, np.dtype("float64"), 16).template == "gemm/simt"
    assert runs_large(info, np.dtype("float64"))
    assert not runs_large(info, np.dtype("int32")) and not runs_large(
        replace(info, local_memory=16384), np.dtype("float32")
    )
    few = replace(info, kind="cpu", compute_units=2)
    assert select_tile(GemmShape(32, 100, 100, ()), few, np.dtype("float32"), 16).template == "gemm/simt"


def test_choice_with_many_registers(context):
    """The fastest tile and number of parts of those that were timed on an H200, or within 2 % of it."""
    features = replace(context.info.features, matrix_f64=0, warp_shuffles=True)
    info = replace(
        context.info, kind="gpu", compute_units=132, max_work_group_size=1024, local_memory=49152, features=features
    )
    fastest = {
        (4096, 4096, 4096): (128, 128, 8, 1),
        (2048, 2048, 2048): (128, 128, 8, 1),
        (1024, 1024, 1024): (128, 64, 16, 1),
        (80000, 64, 64): (128, 64, 16, 1),
        (1024, 512, 784): (64, 64, 32, 1),
        (784, 512, 1024): (64, 64, 32, 1),
        (1024, 512, 256): (64, 64, 32, 1),
        (1024, 256, 512): (32, 64, 32, 1),
        (512, 512, 512): (32, 64, 32, 1),
        (512, 256, 1024): (64, 64, 32, 4),
    }
    for (m, n, k), what in fastest.items():
        tile = select_tile(GemmShape(m, n, k, ()), info, np.dtype("float32"), 16)
        assert (tile.rows, tile.columns, tile.step, tile.split_k) == what, (m, n, k)


def test_programs_are_built_when_sizes_are_known(context, monkeypatch):
    routine = Gemm(context, "float32", schedule="simt")
    with_gpu = replace(context.info, kind="gpu", max_work_group_size=256, local_memory=49152)
    monkeypatch.setattr(routine.limits, "info", with_gpu)
    assert routine.sources() == ()
    monkeypatch.setattr(routine.limits, "info", replace(with_gpu, local_memory=8192))
    (source,) = routine.sources()
    assert source.name.startswith("gemm_simt_")


def test_text_of_instructions(context):
    need(context)
    routine = Gemm(context, "float64", schedule="simt")
    for matrix, name in ((8, "m16n8k8"), (4, "m8n8k4")):
        for tile, _ in large_tiles(np.dtype("float64"), matrix):
            assert f"mma.sync.aligned.{name}.row.col.f64" in routine._source(tile).source
    assert schedule_simt.large_tiles(np.dtype("float32"), 8) == large_tiles(np.dtype("float32"), 0)
