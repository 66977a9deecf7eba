"""A record of arrays that kernels pass by address.

Numba passes a tuple of arrays to an inner function as a hundred scalars, on every call. A `KernelRecord` instead is one
pointer to a small header of (data, rows, columns) triples; `record.name` in a kernel reads the triple and is an
ordinary array, or another record, whose header's address stands in the place of the data. The driver owns the arrays
and keeps them alive.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numba.np.arrayobj import make_array, populate_array

_WORD = ir.IntType(64)


class RecordType(types.Type):
    """The Numba type of a record: the name of each field, and the dtype and dimensions of its array, or its record."""

    def __init__(self, fields: tuple[tuple[str, str | RecordType, int], ...]):
        self.fields = fields
        super().__init__(name=f"Record({fields})")

    def field(self, name: str) -> tuple[int, Any]:
        """Return the position and the Numba type of a field."""
        for position, (field, dtype, dimensions) in enumerate(self.fields):
            if field == name:
                if isinstance(dtype, RecordType):
                    return position, dtype
                return position, types.Array(getattr(types, dtype), dimensions, "C")
        raise AttributeError(name)


@register_model(RecordType)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any):
        super().__init__(dmm, fe_type, _WORD)


@infer_getattr
class _RecordFields(AttributeTemplate):
    key = RecordType

    def generic_resolve(self, record: RecordType, name: str) -> Any:  # type: ignore[override]  # a marker there
        return record.field(name)[1]


@lower_getattr_generic(RecordType)
def _lower_field(context: Any, builder: Any, record: RecordType, value: Any, name: str) -> Any:
    position, array_type = record.field(name)
    header = builder.inttoptr(value, _WORD.as_pointer())

    def word(offset: int) -> Any:
        return builder.load(cgutils.gep_inbounds(builder, header, 3 * position + offset))

    if isinstance(array_type, RecordType):
        return word(0)
    element = context.get_data_type(array_type.dtype)
    size = context.get_constant(types.intp, context.get_abi_sizeof(element))
    rows, columns = word(1), word(2)
    array = make_array(array_type)(context, builder)
    flat = array_type.ndim == 1
    populate_array(
        array,
        data=builder.inttoptr(word(0), element.as_pointer()),
        shape=[rows] if flat else [rows, columns],
        strides=[size] if flat else [builder.mul(columns, size), size],
        itemsize=size,
        meminfo=None,
    )
    return array._getvalue()


def at_address(record: RecordType) -> Any:
    """Return an intrinsic that reads the address of a header as a record."""

    @intrinsic
    def cast(typing_context, address):
        def codegen(context, builder, signature, args):
            return args[0]

        return record(types.int64), codegen

    return cast


@cache
def _layout(record: RecordType) -> dict[str, tuple[int, str, int]]:
    """Map the name of each field to its position, dtype and dimensions."""
    return {name: (n, str(dtype), dims) for n, (name, dtype, dims) in enumerate(record.fields)}


class KernelRecord:
    """The driver's side of a record: named arrays, and the header that kernels read."""

    def __init__(self, record: RecordType, **arrays: np.ndarray | KernelRecord):
        self.header = np.zeros(3 * len(record.fields), np.int64)
        self.address = int(self.header.ctypes.data)  # which kernels take
        self._arrays: dict[str, Any] = {}
        self._nbytes = -1  # not counted
        self._layout = _layout(record)
        self.replace(**arrays)

    def replace(self, **arrays: np.ndarray | KernelRecord) -> None:
        """Replace arrays, and update the header."""
        self._nbytes = -1
        for name, array in arrays.items():
            position, dtype, dimensions = self._layout[name]
            if isinstance(array, KernelRecord):
                self._arrays[name], self.header[3 * position] = array, array.address
                continue
            if not array.flags.c_contiguous or array.ndim != dimensions or str(array.dtype) != dtype:
                raise TypeError(f"{name}: {array.dtype}, {array.ndim} dimensions")
            self._arrays[name] = array
            columns = array.shape[1] if array.ndim == 2 else 1
            self.header[3 * position : 3 * position + 3] = array.ctypes.data, len(array), columns

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["_arrays"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """A copy of the mapping of names to arrays."""
        return dict(self._arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, not counting nested records; two views of one memory count once."""
        if self._nbytes < 0:
            arrays = (a for a in self._arrays.values() if isinstance(a, np.ndarray))
            self._nbytes = sum({a.ctypes.data: a.nbytes for a in arrays}.values())
        return self._nbytes
