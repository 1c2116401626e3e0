"""The Python side of the shared library: every C function is answered by its twin in ``ops.acl`` or ``ops.aclnn``.

A twin takes the inputs in C order (pointers and handles as ints) and returns a status, or a
status and the results for the out-parameters. Nothing here raises into C: what goes wrong becomes a status and the
text of aclGetRecentErrMsg.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ops import acl, aclnn
from ops.acl.errors import set_err_msg
from ops.acl.status import AclError, AclnnStatus, RtError
from ops.c_api.prototypes import Function, Parameter, in_python

NULL_RESULT = "got a null pointer; allowed: where to put the result; pass the address of a variable"


def _is_aclnn(function: Function) -> bool:
    """Whether its statuses are aclnnStatus; functions without a status belong to their module."""
    return function.result == "aclnnStatus" or function.name == "aclCreateTensor"


def _twin(function: Function) -> Callable[..., Any]:
    twin: Callable[..., Any] | None = getattr(acl, function.name, None) or getattr(aclnn, function.name, None)
    if twin is None:
        raise NotImplementedError(f"{function.name}: declared in the headers, but neither in ops.acl nor ops.aclnn")
    return twin


class Connection:
    """The functions of one library, defined in its ``ffi``."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.lib = ffi, lib
        self.texts: dict[str, Any] = {}
        """C strings that were given out, by their text; they must outlive the call."""

    def define_all(self) -> None:
        """Attach every function of the headers, and the two that start.c uses."""
        for function in in_python():
            failure = self._failure(function)
            self.ffi.def_extern(name=f"py_{function.name}", error=failure)(self._answer(function, failure))
        self.ffi.def_extern(name="aicore_py_message", error=0)(self._message)
        self.ffi.def_extern(name="aicore_py_ready", error=0)(lambda: 1)

    def _failure(self, function: Function) -> Any:
        if function.returns_status:
            return int(AclnnStatus.ACLNN_ERR_INNER if _is_aclnn(function) else RtError.ACL_ERROR_RT_INTERNAL_ERROR)
        return self.ffi.NULL if "*" in function.result else 0

    def _answer(self, function: Function, failure: Any) -> Callable[..., Any]:
        twin = _twin(function)
        readers = tuple(self._reader(function, i) for i in range(len(function.parameters)))
        inputs = tuple(r for r in readers if r is not None)
        outs = tuple((i, p) for i, p in enumerate(function.parameters) if p.role.startswith("out"))
        null = AclnnStatus.ACLNN_ERR_PARAM_NULLPTR if _is_aclnn(function) else AclError.ACL_ERROR_INVALID_PARAM
        result = self._result(function)

        def answer(*args: Any) -> Any:
            try:
                for i, parameter in outs:
                    if args[i] == self.ffi.NULL:
                        set_err_msg(function.name, null, f"{parameter.name}: {NULL_RESULT}")
                        return int(null)
                returned = twin(*[read(args) for read in inputs])
                if not outs:
                    return result(returned)
                status, *values = returned
                if status == 0:
                    self._write(outs, args, values)
                return int(status)
            except BaseException as error:
                self.lib.aicore_note(f"{function.name}: {type(error).__name__}: {error}".encode(errors="replace"))
                return failure

        return answer

    def _reader(self, function: Function, index: int) -> Callable[[Sequence[Any]], Any] | None:
        """How the input at ``index`` is read from the C arguments; None for what Python is not given."""
        ffi, parameter = self.ffi, function.parameters[index]
        if parameter.role == "value":
            return lambda args: args[index]
        if parameter.role == "address":
            return lambda args: int(ffi.cast("uintptr_t", args[index]))
        if parameter.role == "text":
            return lambda args: os.fsdecode(ffi.string(args[index])) if args[index] != ffi.NULL else None
        return None

    def _write(self, outs: Sequence[tuple[int, Parameter]], args: Sequence[Any], values: Sequence[Any]) -> None:
        """Put the results where the program wants them."""
        for (i, parameter), value in zip(outs, values, strict=True):
            place = args[i]
            if parameter.role == "out_array":
                place[0] = self.lib.aicore_new_int64(len(value))
                place[0][0 : len(value)] = value
            else:
                place[0] = self.ffi.cast(self.ffi.typeof(place).item, int(value))

    def _result(self, function: Function) -> Callable[[Any], Any]:
        """From what the twin of a function without out-parameters returns to C."""
        if function.result == "const char *":
            return self._text
        if "*" in function.result:
            return lambda value: self.ffi.cast(function.result, int(value or 0))
        return int

    def _text(self, text: str | None) -> Any:
        if text is None:
            return self.ffi.NULL
        if text not in self.texts:
            self.texts[text] = self.ffi.new("char[]", text.encode())
        return self.texts[text]

    def _message(self, place: Any, size: int) -> int:
        """Take the recent message of this thread; cut at a whole character. Returns its length in bytes."""
        text = (acl.aclGetRecentErrMsg() or "").encode(errors="replace")[: size - 1]
        text = text.decode(errors="ignore").encode()
        self.ffi.memmove(place, text + b"\0", len(text) + 1)
        return len(text)


def connect(ffi: Any, lib: Any) -> None:
    """Define everything the library calls; the library runs this once."""
    Connection(ffi, lib).define_all()
