/* The library's own C: it starts the interpreter, and keeps what must work without one.
 *
 * Compiled as a part of the file that cffi writes, which includes Python.h and the headers before it and defines
 * AICORE_PYTHON (path of the interpreter to start) and AICORE_SEARCH (a line of Python that completes sys.path). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int aicore_py_ready(void);
static size_t aicore_py_message(char *text, size_t size);

static pthread_once_t aicore_once = PTHREAD_ONCE_INIT;
static volatile int aicore_started = 0; /* 1: the interpreter answers */
static char aicore_failure[4096];       /* why it does not */

/* The message of a call that never reached the emulator, of this thread; empty when there is none. */
static __thread char aicore_noted[1024];

static void aicore_fail(const char *text)
{
    snprintf(aicore_failure, sizeof aicore_failure, "the emulator's Python (%s) did not start: %s", AICORE_PYTHON,
             text);
}

static void aicore_note(const char *text)
{
    snprintf(aicore_noted, sizeof aicore_noted, "%s", text);
}

/* An array that the program may give to delete[] or free(): from operator new[] when the program has one, so that
 * checkers of allocations see a matching pair. */
static int64_t *aicore_new_int64(uint64_t count)
{
    void *(*new_array)(size_t);
    size_t bytes = (size_t)(count ? count : 1) * sizeof(int64_t);

    *(void **)&new_array = dlsym(RTLD_DEFAULT, "_Znam");
    return (int64_t *)(new_array ? new_array(bytes) : malloc(bytes));
}

/* Keeps the pending Python exception as the reason. Needs the GIL. */
static void aicore_fail_with_exception(void)
{
    PyObject *type, *value, *traceback, *text;
    const char *utf8 = NULL;

    PyErr_Fetch(&type, &value, &traceback);
    text = value ? PyObject_Str(value) : NULL;
    if (text)
        utf8 = PyUnicode_AsUTF8(text);
    aicore_fail(utf8 ? utf8 : "unknown error");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* Starts the interpreter as `AICORE_PYTHON` would be started, so that the venv it belongs to is found, whatever
 * PATH, PYTHONHOME and PYTHONPATH are. The host program keeps its signal handlers, locale and stdio. */
static int aicore_start_interpreter(void)
{
    PyPreConfig before;
    PyConfig config;
    PyStatus status;

    if (access(AICORE_PYTHON, X_OK) != 0) {
        aicore_fail("no such program; build the library again with: aicore c-build");
        return 0;
    }
    PyPreConfig_InitIsolatedConfig(&before);
    before.use_environment = 1; /* PYTHONMALLOC and PYTHONDEVMODE, for those who look for memory errors */
    before.utf8_mode = 1;
    status = Py_PreInitialize(&before);
    if (!PyStatus_Exception(status)) {
        PyConfig_InitIsolatedConfig(&config);
        config.user_site_directory = AICORE_USER_SITE;
        config.install_signal_handlers = 0;
        status = PyConfig_SetBytesString(&config, &config.program_name, AICORE_PYTHON);
        if (!PyStatus_Exception(status))
            status = Py_InitializeFromConfig(&config);
        PyConfig_Clear(&config);
    }
    if (PyStatus_Exception(status)) {
        aicore_fail(status.err_msg ? status.err_msg : "it asked to exit");
        return 0;
    }
    PyEval_SaveThread();
    return 1;
}

/* The library was compiled against one Python; a host program that is Python itself may have another. */
static int aicore_same_version(void)
{
    char built[16];

    snprintf(built, sizeof built, "%d.%d.", PY_MAJOR_VERSION, PY_MINOR_VERSION);
    if (strncmp(Py_GetVersion(), built, strlen(built)) == 0)
        return 1;
    aicore_fail("this process runs another version of Python; build the library again with it: aicore c-build");
    return 0;
}

static void aicore_start_once(void)
{
    PyGILState_STATE state;
    PyObject *backend = NULL;

    if (!aicore_same_version() || (!Py_IsInitialized() && !aicore_start_interpreter()))
        return;
    state = PyGILState_Ensure();
    if (PyRun_SimpleString(AICORE_SEARCH) == 0)
        backend = PyImport_ImportModule("_cffi_backend");
    if (backend == NULL)
        aicore_fail_with_exception();
    Py_XDECREF(backend);
    PyGILState_Release(state);
    if (backend != NULL && aicore_py_ready() == 1)
        aicore_started = 1;
}

/* Starts the interpreter with the first call. 0 when there is none; then aicore_failure says why. */
static int aicore_start(void)
{
    aicore_noted[0] = '\0';
    pthread_once(&aicore_once, aicore_start_once);
    return aicore_started;
}

const char *aclGetRecentErrMsg(void)
{
    static __thread char text[8192];

    if (aicore_noted[0]) {
        memcpy(text, aicore_noted, sizeof aicore_noted);
        aicore_noted[0] = '\0';
        return text;
    }
    if (!aicore_started)
        return aicore_failure[0] ? aicore_failure : NULL;
    return aicore_py_message(text, sizeof text) ? text : NULL;
}

float aclFloat16ToFloat(aclFloat16 value)
{
    uint32_t exponent = (value >> 10) & 31, mantissa = value & 1023;
    float magnitude = (float)(exponent ? mantissa | 1024 : mantissa) / 16777216.0f; /* times 2^-24: exact */

    for (; exponent > 1; exponent--)
        magnitude *= 2.0f;
    return value & 0x8000 ? -magnitude : magnitude;
}

aclFloat16 aclFloatToFloat16(float value)
{
    uint32_t bits, sign, magnitude, shift, kept, rest, half;

    memcpy(&bits, &value, sizeof bits);
    sign = (bits >> 16) & 0x8000;
    magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x477ff000) /* 65520 and more, inf, NaN */
        return (aclFloat16)(sign | 0x7bff);
    if (magnitude < 0x33000000) /* below 2^-25 */
        return (aclFloat16)sign;
    if (magnitude >= 0x38800000) { /* normal: 2^-14 and more */
        kept = (magnitude - 0x38000000) >> 13;
        rest = magnitude & 0x1fff;
        half = 0x1000;
    } else { /* subnormal: whole multiples of 2^-24 */
        shift = 126 - (magnitude >> 23);
        magnitude = (magnitude & 0x7fffff) | 0x800000;
        kept = magnitude >> shift;
        rest = magnitude & ((1u << shift) - 1);
        half = 1u << (shift - 1);
    }
    if (rest > half || (rest == half && (kept & 1)))
        kept++;
    return (aclFloat16)(sign | kept);
}
