"""The headers: languages they compile in, and their numbers against those of ops.acl."""

import enum
import re
import subprocess

import pytest

from ops import acl
from ops.acl import status, types
from ops.c_api import prototypes
from ops.c_api.prototypes import HEADERS, INCLUDE, constants, functions

LANGUAGES = ["c11", "c17", "c++11", "c++14", "c++17", "c++20"]


def enumerators() -> dict[str, int]:
    """Every constant of ops.acl that the vendor's headers have too."""
    found = {}
    for module in (status, types):
        for table in vars(module).values():
            if isinstance(table, type) and issubclass(table, enum.IntEnum) and table.__module__ == module.__name__:
                found |= {name: int(member) for name, member in table.__members__.items()}
    return found


def syntax_check(compilers, language: str, text: str) -> subprocess.CompletedProcess[str]:
    compiler = compilers[1] if "++" in language else compilers[0]
    command = [*compiler, f"-std={language}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    command += [f"-I{INCLUDE}", "-x", "c++" if "++" in language else "c", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_header_compiles_alone_and_twice(compilers, language):
    for header in HEADERS:
        text = f'#include "{header}"\n#include "{header}"\nint one;\n'
        done = syntax_check(compilers, language, text)
        assert done.returncode == 0, (header, done.stderr)


@pytest.mark.parametrize("language", ["c11", "c++11"])
def test_enumerators_have_the_values_of_ops_acl(compilers, language):
    names = enumerators()
    assert len(names) > 200
    keyword = "static_assert" if "++" in language else "_Static_assert"
    asserts = [f'{keyword}({name} == {value}, "{name}");' for name, value in names.items()]
    includes = [f'#include "{header}"' for header in HEADERS]
    done = syntax_check(compilers, language, "\n".join([*includes, *asserts]) + "\n")
    assert done.returncode == 0, done.stderr


def test_a_wrong_value_is_found(compilers):
    done = syntax_check(compilers, "c11", '#include "acl/acl.h"\n_Static_assert(ACL_BF16 == 28, "ACL_BF16");\n')
    assert done.returncode != 0
    assert "ACL_BF16" in done.stderr


def test_published_values():
    """Some of each kind, written down here once more (ascend_facts 7)."""
    published = {
        "ACL_DT_UNDEFINED": -1, "ACL_FLOAT": 0, "ACL_FLOAT16": 1, "ACL_INT32": 3, "ACL_BF16": 27,
        "ACL_FLOAT8_E4M3FN": 36, "ACL_FORMAT_ND": 2, "ACL_FRACTAL_Z_3D": 33, "ACL_FORMAT_NCL": 47,
        "ACL_FORMAT_FRACTAL_NZ_C0_8": 54,
        "ACL_MEMCPY_DEVICE_TO_HOST": 2, "ACL_MEM_MALLOC_HUGE_FIRST": 0, "ACL_MEM_TYPE_HIGH_BAND_WIDTH": 0x1000,
        "ACL_SUCCESS": 0, "ACL_ERROR_INVALID_PARAM": 100000, "ACL_ERROR_RT_CONTEXT_NULL": 107002,
        "ACL_ERROR_RT_VECTOR_CORE_EXCEPTION": 507035, "ACLNN_ERR_PARAM_NULLPTR": 161001,
        "ACLNN_ERR_PARAM_INVALID": 161002, "ACLNN_ERR_INNER_NULLPTR": 561103,
    }  # fmt: skip
    assert published.items() <= constants().items()


def test_every_function_is_read_from_the_headers():
    text = "".join((INCLUDE / header).read_text(encoding="utf-8") for header in HEADERS)
    assert len(functions()) == len(re.findall(r"^ACL_FUNC_VISIBILITY ", text, flags=re.MULTILINE)) > 40


def test_every_function_has_a_twin():
    from ops import aclnn

    missing = {f.name for f in functions() if not hasattr(acl, f.name) and not hasattr(aclnn, f.name)}
    assert missing == {"aclFloat16ToFloat", "aclFloatToFloat16"}, "those two are C only, see src/start.c"


def test_every_function_of_ops_acl_is_declared():
    declared = {f.name for f in functions()}
    assert [name for name in acl.C_FUNCTIONS if name not in declared] == []


def test_roles_of_parameters():
    by_name = {f.name: f for f in functions()}
    roles = [p.role for p in by_name["aclCreateTensor"].parameters]
    assert roles == ["address", "value", "value", "address", "value", "value", "address", "value", "address"]
    assert [p.role for p in by_name["aclGetViewShape"].parameters] == ["address", "out_array", "out"]
    assert [p.role for p in by_name["aclrtMalloc"].parameters] == ["out", "value", "value"]
    assert [p.role for p in by_name["aclrtSynchronizeStream"].parameters] == ["address"]
    assert [p.role for p in by_name["aclInit"].parameters] == ["text"]
    assert by_name["aclInit"].arguments == "const char * configPath"
    assert by_name["aclFinalize"].arguments == "void"


def test_a_parameter_without_a_name_is_refused():
    with pytest.raises(ValueError, match="got no name"):
        prototypes._parameter("void *")
