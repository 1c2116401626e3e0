"""The C ABI: headers, and a shared library that runs a C or C++ host program against this emulator.

``prototypes``
    the functions of the headers; the headers are the one place where they are declared.
``generate``
    C source of the library: one cffi function into Python and one exported wrapper for each of them.
``library``
    compiles it once, into the user's cache folder, and lays out ``include`` and ``lib64`` as an SDK does.
``bridge``
    the Python side, inside the interpreter that the library starts.

Nothing is imported here: what runs inside a host program has no use for a C parser.
"""
