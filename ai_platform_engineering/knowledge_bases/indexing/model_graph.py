"""Builds the ONNX graph of an embedding model: a BERT-like encoder that reads one text, with normalised
output."""

from pathlib import Path
from typing import Any

from ai_platform_engineering.knowledge_bases.indexing.model_weights import ModelWeights, QuantizedMatrix

GRAPH_VERSION = 2  # raised when the graph is built another way
_CONTRIBUTED = "com.microsoft"  # operators of onnxruntime
# Activations are quantised to int8 as well, block by block: vectors differ by less than .0003 (cosine), and
# it is faster than 32 bits.
_INT8_ACTIVATIONS = 4


def save_graph(weights: ModelWeights, path: Path) -> None:
    _GraphBuilder(weights).save(path)


class _GraphBuilder:
    """The graph has one text as its input, so there is no padding and no mask. Methods return the names of
    node outputs."""

    def __init__(self, weights: ModelWeights) -> None:
        self._weights = weights
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def save(self, path: Path) -> None:
        import onnx
        from onnx import TensorProto, helper

        self._add_model()
        graph = helper.make_graph(
            self._nodes,
            "embedding",
            [
                helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "length"]),
                helper.make_tensor_value_info("position_ids", TensorProto.INT64, ["length"]),
            ],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, self._weights.hidden])],
            self._constants,
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(_CONTRIBUTED, 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)

    def _add_model(self) -> None:
        hidden = self._add_embeddings()
        for layer in range(self._weights.layers):
            hidden = self._add_layer(hidden, f"l{layer}.")
        if self._weights.pooling == "cls":
            pooled = self._op("Gather", hidden, self._integer(0), axis=1)
        else:
            pooled = self._op("ReduceMean", hidden, self._integers(1), keepdims=0)
        self._op("LpNormalization", pooled, out="embedding", axis=1, p=2)

    def _add_embeddings(self) -> str:
        offset = self._integer(self._weights.first_position)
        positions = self._op("Gather", self._tensor("pos_emb"), self._op("Add", "position_ids", offset))
        kind = self._constant(self._get_floats("type_emb")[0])
        total = self._op("Add", self._op("Add", self._look_up_words(), positions), kind)
        return self._norm(total, "emb_ln")

    def _look_up_words(self) -> str:
        """The vectors of the words; quantised ones are unpacked for the words of the text alone."""
        from onnx import TensorProto

        table = self._weights.tensors["word_emb"]
        if not isinstance(table, QuantizedMatrix):
            return self._op("Gather", self._constant(table), "input_ids")
        values = self._op("Gather", self._constant(table.values), "input_ids")
        scales = self._op("Gather", self._constant(table.scales), "input_ids")
        factors = self._op("Unsqueeze", scales, self._integers(3))
        words = self._op("Mul", self._op("Cast", values, to=TensorProto.FLOAT), factors)
        return self._op("Reshape", words, self._integers(0, 0, self._weights.hidden))

    def _add_layer(self, hidden: str, name: str) -> str:
        context = self._add_attention(hidden, name)
        hidden = self._norm(self._op("Add", self._linear(context, f"{name}ao"), hidden), f"{name}aln")
        inner = self._op("Gelu", self._linear(hidden, f"{name}f1"))
        return self._norm(self._op("Add", self._linear(inner, f"{name}f2"), hidden), f"{name}fln")

    def _add_attention(self, hidden: str, name: str) -> str:
        heads = self._weights.heads
        size = self._weights.hidden // heads
        parts = self._split(self._linear(hidden, f"{name}qkv"), 3)
        shape = self._integers(0, 0, heads, size)
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        query, key, value = (
            self._op("Transpose", self._op("Reshape", part, shape), perm=order)
            for part, order in zip(parts, orders, strict=True)
        )
        scaled = self._op("Mul", self._op("MatMul", query, key), self._number(size**-0.5))
        mixed = self._op("MatMul", self._op("Softmax", scaled, axis=-1), value)
        merged = self._op("Transpose", mixed, perm=[0, 2, 1, 3])
        return self._op("Reshape", merged, self._integers(0, 0, self._weights.hidden))

    def _linear(self, value: str, name: str) -> str:
        import numpy as np

        matrix = self._weights.tensors[f"{name}.w"]
        if not isinstance(matrix, QuantizedMatrix):
            product = self._op("MatMul", value, self._constant(matrix.T))
        else:
            rows, blocks, size = matrix.values.shape
            unsigned = (matrix.values.astype(np.int16) + 128).astype(np.uint8)
            product = self._op(
                "MatMulNBits",
                value,
                self._constant(unsigned),
                self._constant(matrix.scales.reshape(-1)),
                domain=_CONTRIBUTED,
                N=rows,
                K=blocks * size,
                bits=8,
                block_size=size,
                accuracy_level=_INT8_ACTIVATIONS,
            )
        return self._op("Add", product, self._tensor(f"{name}.b"))

    def _norm(self, value: str, name: str) -> str:
        return self._op(
            "LayerNormalization",
            value,
            self._tensor(f"{name}.w"),
            self._tensor(f"{name}.b"),
            axis=-1,
            epsilon=self._weights.norm_epsilon,
        )

    def _op(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        from onnx import helper

        out = out or f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def _split(self, value: str, count: int) -> list[str]:
        """Equal parts of the last dimension."""
        from onnx import helper

        outputs = [f"n{len(self._nodes)}_{number}" for number in range(count)]
        self._nodes.append(helper.make_node("Split", [value], outputs, axis=-1, num_outputs=count))
        return outputs

    def _tensor(self, name: str) -> str:
        return self._constant(self._get_floats(name))

    def _get_floats(self, name: str) -> Any:
        tensor = self._weights.tensors[name]
        assert not isinstance(tensor, QuantizedMatrix)
        return tensor

    def _number(self, value: float) -> str:
        import numpy as np

        return self._constant(np.float32(value))

    def _integer(self, value: int) -> str:
        import numpy as np

        return self._constant(np.int64(value))

    def _integers(self, *values: int) -> str:
        import numpy as np

        return self._constant(np.array(values, np.int64))

    def _constant(self, value: Any) -> str:
        import numpy as np
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        # Not `ascontiguousarray`: it makes a number a list of one.
        self._constants.append(numpy_helper.from_array(np.require(value, requirements="C"), name))
        return name
