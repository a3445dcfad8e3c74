"""torch.ops.pinfeed in compiled and exported full graphs, with static and symbolic sizes."""

import io

import numpy as np
import pytest
import torch

import op_cases
import pinfeed

P = torch.ops.pinfeed
MEAN, STD = op_cases.MEAN, op_cases.STD

# Inductor's imports warn about themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
every_backend = pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def same(got, expected):
    for one, other in zip(op_cases.tensors(got), op_cases.tensors(expected), strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


@pytest.mark.parametrize("dynamic", [False, True])
@every_backend
def test_compile(backend, dynamic):
    def step(images, values, offsets, length):
        batch = P.normalize_images(images, MEAN, STD, channels_last=True, dtype=torch.bfloat16)
        planes = P.permute(images).float() + 1
        padded = P.pad_jagged(values, offsets, length, side="left")
        again = P.unpad_to_jagged(padded * 2, offsets, values.shape[0], side="left")
        return batch.relu(), planes, padded, again

    compiled = torch.compile(step, backend=backend, dynamic=dynamic, fullgraph=True)
    for count, length in ((2, 9), (5, 7), (3, 12)):
        images = op_cases.images(shape=(count, 8 + count, 7, 3))
        values, offsets = op_cases.jagged(row=(count,))
        same(compiled(images, values, offsets, length), step(images, values, offsets, length))


@every_backend
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_compile_with_out(backend, memory):
    def step(images, out):
        pinfeed.functional.normalize(images, MEAN, STD, out=out)
        return out * 2

    images = op_cases.images()
    given = torch.empty(3, 3, 5, 7).contiguous(memory_format=memory)
    expected = torch.empty_like(given)
    compiled = torch.compile(step, backend=backend, fullgraph=True)
    same(compiled(images, given), step(images, expected))
    same(given, expected)


@every_backend
def test_gradients_through_compile(backend):
    values, offsets = op_cases.jagged()

    def loss(values, length):
        return (P.pad_jagged(values, offsets, length, pad_value=3.0) ** 2).sum()

    gradients = []
    compiled = torch.compile(loss, backend=backend, fullgraph=True, dynamic=True)
    for function in (loss, compiled):
        entry = values.clone().requires_grad_()
        function(entry, 5).backward()
        gradients.append(entry.grad)
    same(*gradients)


def test_functions_trace_to_ops():
    def step(images, out):
        batch = pinfeed.functional.normalize(images, MEAN, 0.25, dtype=torch.float16)
        pinfeed.functional.permute(images, "NHWC", "NCHW", out=out)
        return (
            batch + 1,
            pinfeed.functional.permute(out, "NCHW", "NHWC"),
            pinfeed.functional.normalize(images),
        )

    images = op_cases.images()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    given, expected = torch.empty(3, 3, 5, 7, dtype=torch.uint8), torch.empty_like(images)
    expected = expected.permute(0, 3, 1, 2).contiguous()
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    same(compiled(images, given), step(images, expected))
    same(given, expected)
    (graph,) = graphs
    called = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    ops = [name.split(".")[1] for name in called if name.startswith("pinfeed.")]
    assert ops == ["normalize_images", "permute", "permute", "normalize_images"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", np.float16, np.dtype("f2"), None])
def test_normalize_traces_names_of_dtypes(dtype):
    def step(images):
        return pinfeed.functional.normalize(images, MEAN, STD, **given)

    given = {} if dtype is None else {"dtype": dtype}
    images = op_cases.images()
    expected = step(images)
    same(torch.compile(step, fullgraph=True, backend="eager")(images), expected)


ARRAYS = [np.array(MEAN), torch.tensor(0.5)]


@pytest.mark.parametrize("mean", ARRAYS, ids=repr)
def test_arrays_as_constants_break_the_graph(mean):
    def step(images, mean):
        return pinfeed.functional.normalize(images, mean, np.float32(0.25)) * 2

    images = op_cases.images()
    compiled = torch.compile(step, backend="eager")
    same(compiled(images, mean), step(images, mean))
    same(compiled(images, mean + 1), step(images, mean + 1))
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"tolist|item"):
        torch.compile(step, backend="eager", fullgraph=True)(images, mean)


class Preprocessing(torch.nn.Module):
    def forward(self, images, values, offsets):
        batch = P.normalize_images(images, MEAN, STD, dtype=torch.bfloat16)
        return batch, P.pad_jagged(values, offsets, values.shape[0] // 2, pad_value=-1.0)


def test_export():
    size = torch.export.Dim.AUTO
    args = (op_cases.images(), *op_cases.jagged())
    shapes = ({0: size, 1: size, 2: size}, {0: size}, {0: size})
    exported = torch.export.export(Preprocessing(), args, dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    names = [str(node.target) for node in exported.graph.nodes]
    assert "pinfeed.normalize_images.default" in names
    assert "pinfeed.pad_jagged.default" in names
    images = op_cases.images(shape=(6, 9, 11, 3))
    others = (images, torch.arange(40.0).view(20, 2), torch.tensor([0, 4, 20]))
    for one in (args, others):
        same(loaded(*one), Preprocessing()(*one))
