// A layer between the loader of OpenCL drivers and a driver. It reports uses of the API that the standard leaves
// undefined, or that end processes, and that drivers of CPUs forgive. ci/opencl_checks.sh builds and uses it.
//
// OPENCL_LAYERS names it to the loader, LD_PRELOAD lets it see memory that is freed. Variables:
//   OPENCL_CHECKS_LOG     file to which reports are appended; stderr without
//   OPENCL_CHECKS_AS_GPU  1: a CPU says that it is a GPU with memory, limits and alignment of its own
//   OPENCL_CHECKS_NOTES   1: also what is allowed and may be of interest: errors of the driver, ends of threads
//   OPENCL_CHECKS_HISTORY file to which a line is appended before each object is released: after the end of a process in
//                         the driver, the last lines say what was released
//
// Memory of the host counts as used by a transfer, or by a buffer over it, until the program knows that the command has
// run, by a wait or by the command's status. So what is reported does not depend on how quick the driver was.
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl_layer.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr size_t PAGE = 4096;
constexpr size_t GPU_ALIGNMENT = 512;  // bytes, of sub-buffers
constexpr size_t GPU_GROUPS = 65535;   // work-groups in dimensions 1 and 2
constexpr int FRAMES = 14;             // of Python, in a report

_cl_icd_dispatch layer;
_cl_icd_dispatch driver;
bool as_gpu, has_notes, follows_free;
std::atomic<bool> is_forked{false}, is_exiting{false};
std::atomic<size_t> ranges_in_use{0};
thread_local bool is_inside = false;  // memory that the layer or a driver frees is not looked at

struct Inside {
    bool before = is_inside;
    Inside() { is_inside = true; }
    ~Inside() { is_inside = before; }
};

// What the process makes is never destroyed: drivers are called until its very end.
template <class T, int number = 0> T &forever()
{
    static T *object = new T;
    return *object;
}

std::recursive_mutex &mutex() { return forever<std::recursive_mutex>(); }
using Guard = std::lock_guard<std::recursive_mutex>;

long this_thread()
{
    static thread_local long number = syscall(SYS_gettid);
    return number;
}

// ---------------------------------------------------------------------------------------------------------- Reports

int log_file()
{
    static int file = [] {
        const char *name = getenv("OPENCL_CHECKS_LOG");
        FILE *opened = name ? fopen(name, "a") : nullptr;
        return opened ? fileno(opened) : 2;
    }();
    return file;
}

template <class Function> Function in_python(const char *name)
{
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

void write_python_stack()
{
    static auto is_initialized = in_python<int (*)()>("Py_IsInitialized");
    static auto is_finalizing = in_python<int (*)()>("_Py_IsFinalizing");
    static auto thread_state = in_python<void *(*)()>("PyGILState_GetThisThreadState");
    static auto ensure = in_python<int (*)()>("PyGILState_Ensure");
    static auto release = in_python<void (*)(int)>("PyGILState_Release");
    static auto take_error = in_python<void *(*)()>("PyErr_GetRaisedException");
    static auto set_error = in_python<void (*)(void *)>("PyErr_SetRaisedException");
    static auto run = in_python<int (*)(const char *, void *)>("PyRun_SimpleStringFlags");
    bool is_there = is_initialized && is_initialized() && !(is_finalizing && is_finalizing());
    if (!is_there || !thread_state()) {
        dprintf(log_file(), "    (not in Python)\n");
        return;
    }
    char text[512];
    snprintf(text, sizeof text,
             "import os as _o, threading as _t, traceback as _s\n"
             "_o.write(%d, ('    thread ' + _t.current_thread().name + chr(10) + ''.join(\n"
             "    f'    {f.filename}:{f.lineno} {f.name}' + chr(10) for f in _s.extract_stack()[-%d:-1])).encode())\n",
             log_file(), FRAMES);
    int state = ensure();
    void *error = take_error();
    run(text, nullptr);
    if (error)
        set_error(error);
    release(state);
}

__attribute__((format(printf, 3, 4))) void write_report(bool is_note, const char *kind, const char *format, ...)
{
    if (is_note && !has_notes)
        return;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    {
        Guard guard(mutex());
        if (!forever<std::set<std::string>>().insert(std::string(kind) + text).second)
            return;
    }
    Inside inside;
    dprintf(log_file(), "%s %s: %s (process %d)\n", is_note ? "note" : "error", kind, text, getpid());
    write_python_stack();
}

#define ERROR(...) write_report(false, __VA_ARGS__)
#define NOTE(...) write_report(true, __VA_ARGS__)

int history_file()
{
    static int file = [] {
        const char *name = getenv("OPENCL_CHECKS_HISTORY");
        return name ? open(name, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    }();
    return file;
}

// ---------------------------------------------------------------------------------------------------------- Objects

enum Type { CONTEXT, QUEUE, BUFFER, PROGRAM, KERNEL, EVENT };
const char *const TYPES[] = {"context", "queue", "buffer", "program", "kernel", "event"};

struct Command {
    cl_command_queue queue = nullptr;
    long generation = 0, number = 0;
};

struct Object {
    Type type;
    long references = 1, generation = 0;
    void *parent = nullptr;
    // Buffers: `uses` has the last command of each queue; `range` is the number of the host memory that it is over.
    size_t size = 0, origin = 0;
    long maps = 0, range = 0, whole = 0;  // whole: generation of the buffer that it is a part of
    std::map<cl_command_queue, long> uses;
    // Queues: numbers of the last command, and of the last one that is known to have run.
    long last = 0, known = 0;
    bool in_order = true;
    std::vector<std::pair<long, Command>> waits;
    // Programs
    std::string text;
    // Kernels; `read`: the arguments that are pointers to const
    std::string name;
    std::set<cl_uint> read;
    std::map<cl_uint, std::pair<cl_mem, long>> arguments;
    // Events
    Command command;
};

struct Call {
    const char *name;
    long thread;
    std::vector<const void *> objects;
    bool uses(const void *object) const { return std::find(objects.begin(), objects.end(), object) != objects.end(); }
};

auto &objects() { return forever<std::unordered_map<const void *, Object>>(); }
auto &released() { return forever<std::unordered_map<const void *, Type>>(); }
auto &calls() { return forever<std::vector<Call *>>(); }

Object *find(const void *handle)
{
    auto at = objects().find(handle);
    return at == objects().end() ? nullptr : &at->second;
}

Object *find(const void *handle, Type type)
{
    Object *object = find(handle);
    return object && object->type == type ? object : nullptr;
}

Object *add(Type type, const void *handle, void *parent)
{
    static long generations = 0;
    if (!handle)
        return nullptr;
    Object object{};
    object.type = type;
    object.generation = ++generations;
    object.parent = parent;
    released().erase(handle);
    return &(objects()[handle] = object);
}

pthread_key_t of_thread;

void thread_ends(void *)
{
    Guard guard(mutex());
    for (Call *call : calls())
        if (call->thread != this_thread() && !is_exiting)
            NOTE("thread", "one that has called the driver ends while another one is in %s", call->name);
}

// A call of the driver, with the objects that it uses.
struct Scope {
    Inside inside;
    Call call;

    Scope(const char *name, std::initializer_list<const void *> used) : call{name, this_thread(), {}}
    {
        if (is_forked)
            ERROR("fork", "%s in a forked process", name);
        if (is_exiting)
            ERROR("exit", "%s after the process has begun to end", name);
        pthread_setspecific(of_thread, this);
        Guard guard(mutex());
        for (const void *handle : used)
            use(handle);
        calls().push_back(&call);
    }

    ~Scope()
    {
        Guard guard(mutex());
        calls().erase(std::find(calls().begin(), calls().end(), &call));
    }

    void use(const void *handle)
    {
        Guard guard(mutex());
        if (!handle)
            return;
        call.objects.push_back(handle);
        if (!find(handle) && released().count(handle))
            ERROR("released", "%s uses a %s that was released", call.name, TYPES[released()[handle]]);
        if (!find(handle, KERNEL))
            return;
        for (Call *other : calls())
            if (other->thread != call.thread && other->uses(handle))
                ERROR("kernel", "%s while another thread is in %s with the same kernel", call.name, other->name);
    }

    void use_all(cl_uint count, const cl_event *list)
    {
        for (cl_uint k = 0; k < count; k++)
            use(list[k]);
    }

    cl_int checked(cl_int code)
    {
        if (code != CL_SUCCESS)
            NOTE("code", "%s returns %d", call.name, code);
        return code;
    }
};

// ----------------------------------------------------------------------------------------------- Memory of the host

struct Range {
    const char *begin, *end;
    cl_mem buffer;    // that is over it, as long as it exists
    Command command;  // that uses it, otherwise
    const char *user;
};

auto &ranges() { return forever<std::map<long, Range>>(); }

bool has_run(const Command &command)
{
    Object *queue = find(command.queue);
    return !queue || queue->generation != command.generation || queue->known >= command.number;
}

long add_range(const void *begin, size_t size, cl_mem buffer, const Command &command, const char *user)
{
    static long numbers = 0;
    auto *first = static_cast<const char *>(begin);
    ranges()[++numbers] = {first, first + size, buffer, command, user};
    ranges_in_use = ranges().size();
    return numbers;
}

void drop_ranges()
{
    for (auto at = ranges().begin(); at != ranges().end();)
        at = !at->second.buffer && has_run(at->second.command) ? ranges().erase(at) : std::next(at);
    ranges_in_use = ranges().size();
}

void check_freed(const void *memory, size_t size, const char *how)
{
    Inside inside;
    Guard guard(mutex());
    auto *begin = static_cast<const char *>(memory);
    for (auto &[number, range] : ranges()) {
        auto *first = range.begin + (range.buffer ? PAGE : 0);  // may begin in the page before an array
        if (begin < range.end && first < begin + size && (range.buffer || !has_run(range.command)))
            ERROR("memory", "%s of what %s may still use", how, range.user);
    }
}

bool is_on_stack(const void *memory)
{
    pthread_attr_t attributes;
    void *base;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes))
        return false;
    pthread_attr_getstack(&attributes, &base, &size);
    pthread_attr_destroy(&attributes);
    return memory >= base && memory < static_cast<char *>(base) + size;
}

// --------------------------------------------------------------------------------------------------------- Commands

void note_run(const Command &command)
{
    Object *queue = find(command.queue, QUEUE);
    if (!queue || !queue->in_order || queue->generation != command.generation || command.number <= queue->known)
        return;
    queue->known = command.number;
    auto waits = std::move(queue->waits);
    queue->waits.clear();
    for (auto &wait : waits)
        if (wait.first <= command.number)
            note_run(wait.second);
        else
            find(command.queue)->waits.push_back(wait);
}

// The command that a call enqueues: the buffers that it uses, and what it waits for.
Command enqueue(Scope &scope, cl_command_queue handle, std::initializer_list<cl_mem> used, cl_uint count,
                const cl_event *list)
{
    Guard guard(mutex());
    Object *queue = find(handle, QUEUE);
    scope.use_all(count, list);
    if (!queue)
        return {};
    Command command{handle, queue->generation, ++queue->last};
    for (cl_uint k = 0; k < count; k++)
        if (Object *event = find(list[k], EVENT))
            queue->waits.push_back({command.number, event->command});
    for (cl_mem buffer : used)
        for (Object *one = find(buffer, BUFFER); one; one = find(one->parent, BUFFER))
            one->uses[handle] = command.number;
    return command;
}

cl_int end_enqueue(Scope &scope, cl_int code, const Command &command, cl_event *event, bool is_blocking = false)
{
    Guard guard(mutex());
    if (code == CL_SUCCESS && event)
        if (Object *made = add(EVENT, *event, command.queue))
            made->command = command;
    if (code == CL_SUCCESS && is_blocking)
        note_run(command);
    drop_ranges();
    return scope.checked(code);
}

void check_part(const char *name, cl_mem handle, size_t offset, size_t size)
{
    Guard guard(mutex());
    Object *buffer = find(handle, BUFFER);
    if (!size)
        ERROR("size", "%s of no bytes", name);
    if (buffer && offset + size > buffer->size)
        ERROR("size", "%s of bytes %zu to %zu of a buffer of %zu", name, offset, offset + size, buffer->size);
}

// The place of a buffer in the buffer that it is a part of.
struct Place {
    const void *whole;
    size_t begin, end;
    Place(cl_mem handle, size_t offset, size_t size)
    {
        Object *buffer = find(handle, BUFFER);
        bool is_part = buffer && find(buffer->parent, BUFFER);
        whole = is_part ? buffer->parent : handle;
        begin = offset + (is_part ? buffer->origin : 0);
        end = begin + (size || !buffer ? size : buffer->size);
    }
    bool overlaps(const Place &other) const
    {
        return whole == other.whole && begin < other.end && other.begin < end;
    }
};

template <class Pointer, class Function>
cl_int transfer(Scope &scope, Function call, const char *user, cl_command_queue queue, cl_mem buffer,
                cl_bool is_blocking, size_t offset, size_t size, Pointer memory, cl_uint count, const cl_event *list,
                cl_event *event)
{
    check_part(scope.call.name, buffer, offset, size);
    Command command = enqueue(scope, queue, {buffer}, count, list);
    if (!is_blocking) {
        Guard guard(mutex());
        add_range(memory, size, nullptr, command, user);
        if (is_on_stack(memory))
            ERROR("memory", "%s does not wait, and uses memory on the stack", scope.call.name);
    }
    cl_int code = call(queue, buffer, is_blocking, offset, size, memory, count, list, event);
    return end_enqueue(scope, code, command, event, is_blocking);
}

cl_int CL_API_CALL enqueue_read(cl_command_queue queue, cl_mem buffer, cl_bool is_blocking, size_t offset, size_t size,
                                void *memory, cl_uint count, const cl_event *list, cl_event *event)
{
    Scope scope("clEnqueueReadBuffer", {queue, buffer});
    return transfer(scope, driver.clEnqueueReadBuffer, "a download", queue, buffer, is_blocking, offset, size, memory,
                    count, list, event);
}

cl_int CL_API_CALL enqueue_write(cl_command_queue queue, cl_mem buffer, cl_bool is_blocking, size_t offset, size_t size,
                                 const void *memory, cl_uint count, const cl_event *list, cl_event *event)
{
    Scope scope("clEnqueueWriteBuffer", {queue, buffer});
    return transfer(scope, driver.clEnqueueWriteBuffer, "an upload", queue, buffer, is_blocking, offset, size, memory,
                    count, list, event);
}

cl_int CL_API_CALL enqueue_copy(cl_command_queue queue, cl_mem source, cl_mem target, size_t from, size_t to,
                                size_t size, cl_uint count, const cl_event *list, cl_event *event)
{
    Scope scope("clEnqueueCopyBuffer", {queue, source, target});
    check_part(scope.call.name, source, from, size);
    check_part(scope.call.name, target, to, size);
    Command command = enqueue(scope, queue, {source, target}, count, list);
    {
        Guard guard(mutex());
        if (Place(source, from, size).overlaps(Place(target, to, size)))
            ERROR("overlap", "a copy between overlapping parts of a buffer");
    }
    cl_int code = driver.clEnqueueCopyBuffer(queue, source, target, from, to, size, count, list, event);
    return end_enqueue(scope, code, command, event);
}

cl_int CL_API_CALL enqueue_fill(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_size,
                                size_t offset, size_t size, cl_uint count, const cl_event *list, cl_event *event)
{
    Scope scope("clEnqueueFillBuffer", {queue, buffer});
    check_part(scope.call.name, buffer, offset, size);
    if (!pattern_size || offset % pattern_size || size % pattern_size)
        ERROR("size", "a pattern of %zu bytes fills %zu bytes from %zu on", pattern_size, size, offset);
    Command command = enqueue(scope, queue, {buffer}, count, list);
    cl_int code = driver.clEnqueueFillBuffer(queue, buffer, pattern, pattern_size, offset, size, count, list, event);
    return end_enqueue(scope, code, command, event);
}

void *CL_API_CALL enqueue_map(cl_command_queue queue, cl_mem buffer, cl_bool is_blocking, cl_map_flags flags,
                              size_t offset, size_t size, cl_uint count, const cl_event *list, cl_event *event,
                              cl_int *error)
{
    Scope scope("clEnqueueMapBuffer", {queue, buffer});
    check_part(scope.call.name, buffer, offset, size);
    Command command = enqueue(scope, queue, {buffer}, count, list);
    cl_int code = CL_SUCCESS;
    void *memory =
        driver.clEnqueueMapBuffer(queue, buffer, is_blocking, flags, offset, size, count, list, event, &code);
    Guard guard(mutex());
    if (Object *mapped = code == CL_SUCCESS ? find(buffer, BUFFER) : nullptr)
        mapped->maps++;
    end_enqueue(scope, code, command, event, is_blocking);
    if (error)
        *error = code;
    return memory;
}

cl_int CL_API_CALL enqueue_unmap(cl_command_queue queue, cl_mem buffer, void *memory, cl_uint count,
                                 const cl_event *list, cl_event *event)
{
    Scope scope("clEnqueueUnmapMemObject", {queue, buffer});
    Command command = enqueue(scope, queue, {buffer}, count, list);
    {
        Guard guard(mutex());
        Object *mapped = find(buffer, BUFFER);
        if (mapped && --mapped->maps < 0)
            ERROR("map", "a buffer is unmapped that is not mapped");
    }
    cl_int code = driver.clEnqueueUnmapMemObject(queue, buffer, memory, count, list, event);
    return end_enqueue(scope, code, command, event);
}

cl_int CL_API_CALL enqueue_migrate(cl_command_queue queue, cl_uint buffers, const cl_mem *list_of_buffers,
                                   cl_mem_migration_flags flags, cl_uint count, const cl_event *list, cl_event *event)
{
    Scope scope("clEnqueueMigrateMemObjects", {queue});
    for (cl_uint k = 0; k < buffers; k++)
        scope.use(list_of_buffers[k]);
    Command command = enqueue(scope, queue, {}, count, list);
    cl_int code = driver.clEnqueueMigrateMemObjects(queue, buffers, list_of_buffers, flags, count, list, event);
    return end_enqueue(scope, code, command, event);
}

cl_int CL_API_CALL enqueue_marker(cl_command_queue queue, cl_uint count, const cl_event *list, cl_event *event)
{
    Scope scope("clEnqueueMarkerWithWaitList", {queue});
    Command command = enqueue(scope, queue, {}, count, list);
    return end_enqueue(scope, driver.clEnqueueMarkerWithWaitList(queue, count, list, event), command, event);
}

cl_int CL_API_CALL enqueue_barrier(cl_command_queue queue, cl_uint count, const cl_event *list, cl_event *event)
{
    Scope scope("clEnqueueBarrierWithWaitList", {queue});
    Command command = enqueue(scope, queue, {}, count, list);
    return end_enqueue(scope, driver.clEnqueueBarrierWithWaitList(queue, count, list, event), command, event);
}

void check_arguments(const Object &kernel)
{
    const char *name = kernel.name.c_str();
    std::vector<std::pair<cl_uint, cl_mem>> buffers;
    for (auto &[index, argument] : kernel.arguments) {
        Object *buffer = find(argument.first, BUFFER);
        if (!buffer || buffer->generation != argument.second) {
            ERROR("released", "%s is enqueued with argument %u, which was released", name, index);
            continue;
        }
        if (buffer->maps > 0)
            ERROR("map", "%s is enqueued with argument %u, which is mapped", name, index);
        for (auto &[other, handle] : buffers)
            if (handle != argument.first && Place(handle, 0, 0).overlaps(Place(argument.first, 0, 0)) &&
                !(kernel.read.count(other) && kernel.read.count(index)))  // reads of overlapping buffers are defined
                ERROR("overlap", "%s is enqueued with overlapping buffers, arguments %u and %u", name, other, index);
        buffers.push_back({index, argument.first});
    }
}

void check_sizes(cl_command_queue queue, cl_kernel handle, const char *name, cl_uint dims, const size_t *global,
                 const size_t *local)
{
    cl_device_id device;
    size_t of_kernel = 0, of_device = 0, items = 1, group = 1;
    cl_ulong used = 0, room = 0;
    driver.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, nullptr);
    layer.clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof of_device, &of_device, nullptr);
    layer.clGetDeviceInfo(device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof room, &room, nullptr);
    driver.clGetKernelWorkGroupInfo(handle, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof of_kernel, &of_kernel, nullptr);
    driver.clGetKernelWorkGroupInfo(handle, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof used, &used, nullptr);
    for (cl_uint k = 0; k < dims; k++) {
        items *= global[k];
        if (!local)
            continue;
        group *= local[k];
        if (!local[k] || global[k] % local[k])
            ERROR("range", "%s: global size %zu, local size %zu", name, global[k], local[k]);
        else if (as_gpu && k && global[k] / local[k] > GPU_GROUPS)
            ERROR("range", "%s: %zu work-groups in dimension %u", name, global[k] / local[k], k);
    }
    if (!items)
        ERROR("range", "%s: no work-items", name);
    if (group > std::min(of_kernel, of_device))
        ERROR("range", "%s: a work-group of %zu, of %zu at most", name, group, std::min(of_kernel, of_device));
    if (used > room)
        ERROR("range", "%s: %lu bytes of local memory, of %lu", name, (unsigned long)used, (unsigned long)room);
}

cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel handle, cl_uint dims, const size_t *offset,
                                  const size_t *global, const size_t *local, cl_uint count, const cl_event *list,
                                  cl_event *event)
{
    Scope scope("clEnqueueNDRangeKernel", {queue, handle});
    Command command = enqueue(scope, queue, {}, count, list);
    {
        Guard guard(mutex());
        if (Object *kernel = find(handle, KERNEL)) {
            check_arguments(*kernel);
            check_sizes(queue, handle, kernel->name.c_str(), dims, global, local);
            for (auto &[index, argument] : kernel->arguments)
                for (Object *one = find(argument.first, BUFFER); one; one = find(one->parent, BUFFER))
                    one->uses[queue] = command.number;
        }
    }
    cl_int code = driver.clEnqueueNDRangeKernel(queue, handle, dims, offset, global, local, count, list, event);
    return end_enqueue(scope, code, command, event);
}

// ------------------------------------------------------------------------------------------------------------ Waits

cl_int CL_API_CALL finish(cl_command_queue queue)
{
    Scope scope("clFinish", {queue});
    Command last;
    {
        Guard guard(mutex());
        if (Object *object = find(queue, QUEUE))
            last = {queue, object->generation, object->last};
    }
    return end_enqueue(scope, driver.clFinish(queue), last, nullptr, true);
}

cl_int CL_API_CALL flush(cl_command_queue queue)
{
    Scope scope("clFlush", {queue});
    return scope.checked(driver.clFlush(queue));
}

cl_event CL_API_CALL create_user_event(cl_context context, cl_int *error)
{
    Scope scope("clCreateUserEvent", {context});
    cl_event made = driver.clCreateUserEvent(context, error);
    Guard guard(mutex());
    add(EVENT, made, context); // its handle may be that of an event that was released
    return made;
}

void event_has_run(cl_event handle)
{
    Guard guard(mutex());
    if (Object *event = find(handle, EVENT))
        note_run(event->command);
    drop_ranges();
}

cl_int CL_API_CALL wait_for_events(cl_uint count, const cl_event *list)
{
    Scope scope("clWaitForEvents", {});
    scope.use_all(count, list);
    cl_int code = driver.clWaitForEvents(count, list);
    for (cl_uint k = 0; code == CL_SUCCESS && k < count; k++)
        event_has_run(list[k]);
    return scope.checked(code);
}

cl_int CL_API_CALL event_info(cl_event event, cl_event_info name, size_t size, void *value, size_t *size_out)
{
    Scope scope("clGetEventInfo", {event});
    cl_int code = driver.clGetEventInfo(event, name, size, value, size_out);
    if (code == CL_SUCCESS && name == CL_EVENT_COMMAND_EXECUTION_STATUS && value) {
        cl_int status = *static_cast<cl_int *>(value);
        if (status == CL_COMPLETE)
            event_has_run(event);
        if (status < 0)
            ERROR("status", "a command has ended with %d", status);
    }
    return scope.checked(code);
}

cl_int CL_API_CALL profiling_info(cl_event event, cl_profiling_info name, size_t size, void *value, size_t *size_out)
{
    Scope scope("clGetEventProfilingInfo", {event});
    return scope.checked(driver.clGetEventProfilingInfo(event, name, size, value, size_out));
}

cl_int CL_API_CALL event_callback(cl_event event, cl_int status, void(CL_CALLBACK *notify)(cl_event, cl_int, void *),
                                  void *user)
{
    Scope scope("clSetEventCallback", {event});
    NOTE("callback", "a thread of the driver will call the program");
    return driver.clSetEventCallback(event, status, notify, user);
}

// ---------------------------------------------------------------------------------------------- Making and releasing

void process_ends()
{
    if (is_exiting.exchange(true) || is_forked)
        return;
    Guard guard(mutex());
    for (Call *call : calls())
        if (call->thread != this_thread())
            ERROR("exit", "the process ends while a thread is in %s", call->name);
}

cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint count,
                                      const cl_device_id *devices,
                                      void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
                                      cl_int *error)
{
    Scope scope("clCreateContext", {});
    cl_context made = driver.clCreateContext(properties, count, devices, notify, user, error);
    atexit(process_ends);  // functions are called in reverse order, and the driver may have registered one meanwhile
    Guard guard(mutex());
    add(CONTEXT, made, nullptr);
    return made;
}

cl_command_queue note_queue(cl_command_queue made, cl_context context, cl_command_queue_properties properties)
{
    Guard guard(mutex());
    if (Object *queue = add(QUEUE, made, context))
        queue->in_order = !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    return made;
}

cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                          cl_command_queue_properties properties, cl_int *error)
{
    Scope scope("clCreateCommandQueue", {context});
    return note_queue(driver.clCreateCommandQueue(context, device, properties, error), context, properties);
}

cl_command_queue CL_API_CALL create_queue_with(cl_context context, cl_device_id device, const cl_queue_properties *list,
                                               cl_int *error)
{
    Scope scope("clCreateCommandQueueWithProperties", {context});
    cl_command_queue_properties properties = 0;
    for (const cl_queue_properties *pair = list; pair && *pair; pair += 2)
        if (*pair == CL_QUEUE_PROPERTIES)
            properties = pair[1];
    return note_queue(driver.clCreateCommandQueueWithProperties(context, device, list, error), context, properties);
}

cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *memory, cl_int *error)
{
    Scope scope("clCreateBuffer", {context});
    if (!size)
        ERROR("size", "clCreateBuffer of no bytes");
    cl_mem made = driver.clCreateBuffer(context, flags, size, memory, error);
    Guard guard(mutex());
    if (Object *buffer = add(BUFFER, made, context)) {
        buffer->size = size;
        if (flags & CL_MEM_USE_HOST_PTR)
            buffer->range = add_range(memory, size, made, {}, "a buffer over it");
    }
    return made;
}

cl_mem CL_API_CALL create_part(cl_mem whole, cl_mem_flags flags, cl_buffer_create_type type, const void *info,
                               cl_int *error)
{
    Scope scope("clCreateSubBuffer", {whole});
    auto *region = static_cast<const cl_buffer_region *>(info);
    check_part(scope.call.name, whole, region->origin, region->size);
    if (as_gpu && region->origin % GPU_ALIGNMENT)
        ERROR("size", "a sub-buffer begins at byte %zu, not a multiple of %zu", region->origin, GPU_ALIGNMENT);
    cl_mem made = driver.clCreateSubBuffer(whole, flags, type, info, error);
    Guard guard(mutex());
    if (Object *part = add(BUFFER, made, whole)) {  // objects that were found before may have moved
        part->size = region->size;
        part->origin = region->origin;
        if (Object *object = find(whole, BUFFER))
            part->whole = object->generation;
    }
    return made;
}

cl_program note_program(cl_program made, cl_context context)
{
    Guard guard(mutex());
    add(PROGRAM, made, context);
    return made;
}

cl_program CL_API_CALL program_of_text(cl_context context, cl_uint count, const char **texts, const size_t *sizes,
                                       cl_int *error)
{
    Scope scope("clCreateProgramWithSource", {context});
    cl_program made = note_program(driver.clCreateProgramWithSource(context, count, texts, sizes, error), context);
    Guard guard(mutex());
    if (Object *program = find(made, PROGRAM))
        for (cl_uint k = 0; k < count; k++)
            program->text += sizes && sizes[k] ? std::string(texts[k], sizes[k]) : texts[k];
    return made;
}

// The parameters of a kernel that are pointers to const, as its program declares them: drivers need not know it of a
// program that was built without -cl-kernel-arg-info. None if the program came from a binary.
std::set<cl_uint> parameters_read(const std::string &text, const std::string &name)
{
    std::set<cl_uint> found;
    const std::string head = "void " + name + "(";
    const size_t begin = text.find(head);
    if (begin == std::string::npos)
        return found;
    std::istringstream parameters(text.substr(begin + head.size(), text.find(')', begin) - begin - head.size()));
    std::string parameter;
    for (cl_uint index = 0; std::getline(parameters, parameter, ','); index++)
        if (parameter.find("const") < parameter.find('*') && parameter.find('*') != std::string::npos)
            found.insert(index);
    return found;
}

cl_program CL_API_CALL program_of_binary(cl_context context, cl_uint count, const cl_device_id *devices,
                                         const size_t *sizes, const unsigned char **binaries, cl_int *status,
                                         cl_int *error)
{
    Scope scope("clCreateProgramWithBinary", {context});
    return note_program(
        driver.clCreateProgramWithBinary(context, count, devices, sizes, binaries, status, error), context);
}

cl_int CL_API_CALL build_program(cl_program program, cl_uint count, const cl_device_id *devices, const char *options,
                                 void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    Scope scope("clBuildProgram", {program});
    {
        Guard guard(mutex());
        for (Call *other : calls())
            if (other != &scope.call && other->uses(program))
                ERROR("program", "clBuildProgram while another thread is in %s with the program", other->name);
    }
    return scope.checked(driver.clBuildProgram(program, count, devices, options, notify, user));
}

cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *error)
{
    Scope scope("clCreateKernel", {program});
    cl_int code = CL_SUCCESS;
    cl_kernel made = driver.clCreateKernel(program, name, &code);
    if (error)
        *error = code;
    scope.checked(code);
    Guard guard(mutex());
    if (Object *kernel = add(KERNEL, made, program))
        kernel->name = name;
    Object *kernel = find(made, KERNEL), *from = find(program, PROGRAM);
    if (kernel && from)
        kernel->read = parameters_read(from->text, name);
    return made;
}

cl_int CL_API_CALL set_argument(cl_kernel handle, cl_uint index, size_t size, const void *value)
{
    Scope scope("clSetKernelArg", {handle});
    {
        Guard guard(mutex());
        if (Object *kernel = find(handle, KERNEL)) {
            cl_mem buffer = value && size == sizeof(cl_mem) ? *static_cast<const cl_mem *>(value) : nullptr;
            kernel->arguments.erase(index);
            if (Object *found = find(buffer, BUFFER))
                kernel->arguments[index] = {buffer, found->generation};
        }
    }
    return scope.checked(driver.clSetKernelArg(handle, index, size, value));
}

template <Type type> void note_retained(const void *handle)
{
    Guard guard(mutex());
    if (Object *object = find(handle))
        object->references++;
    else
        add(type, handle, nullptr);
}

void note_buffer_released(const Object &buffer)
{
    if (buffer.maps > 0)
        ERROR("map", "a buffer is released that is mapped");
    if (!buffer.range)
        return;
    Range range = ranges()[buffer.range];
    ranges().erase(buffer.range);
    for (auto &[handle, number] : buffer.uses) {
        Object *queue = find(handle, QUEUE);
        if (queue && queue->known < number)
            add_range(range.begin, range.end - range.begin, nullptr, {handle, queue->generation, number},
                      "a command with a buffer that was over it");
    }
}

// Drivers of NVIDIA may end the process where parts that kernels have used are released in another order.
void check_order(const Object &part)
{
    for (auto &[handle, other] : objects())
        if (part.whole && other.whole == part.whole && other.generation > part.generation)
            ERROR("order", "a part of a buffer is released before one that was made later");
}

template <Type type> void note_released(const void *handle, const Scope &scope)
{
    Guard guard(mutex());
    Object *object = find(handle);
    if (!object || --object->references > 0)
        return;
    for (Call *other : calls())
        if (other != &scope.call && other->uses(handle))
            ERROR("released", "a %s is released while another thread is in %s with it", TYPES[type], other->name);
    if (type == BUFFER) {
        note_buffer_released(*object);
        check_order(*object);
    }
    if (type == QUEUE && object->known < object->last)
        NOTE("queue", "one is released, and nothing has waited for its last commands");
    objects().erase(handle);
    released()[handle] = type;
}

cl_uint driver_references(const void *buffer)
{
    cl_uint count = 0;
    driver.clGetMemObjectInfo((cl_mem)buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, nullptr);
    return count;
}

// Append what is known of an object whose last reference is about to be released.
void write_history(const void *handle)
{
    Guard guard(mutex());
    Object *object = find(handle);
    if (!object || object->references > 1)
        return;
    std::string text;
    char part[160];
    auto append = [&](const char *format, auto... values) {
        snprintf(part, sizeof part, format, values...);
        text += part;
    };
    append("%d thread %ld releases %s %ld %p", getpid(), this_thread(), TYPES[object->type], object->generation,
           handle);
    if (object->type == KERNEL)
        append(" %s", object->name.c_str());
    if (object->type == BUFFER) {
        append(" size %zu references %u", object->size, driver_references(handle));
        if (Object *whole = find(object->parent, BUFFER))
            append(" part of %ld from %zu, references %u", whole->generation, object->origin,
                   driver_references(object->parent));
        else if (released().count(object->parent))
            append(" part of what was released");
        for (auto &[queue, number] : object->uses)
            if (Object *found = find(queue, QUEUE))
                append(" queue %ld command %ld known %ld", found->generation, number, found->known);
            else
                append(" command %ld of a queue that was released", number);
        int count = 0;
        for (auto &[other, one] : objects())
            for (auto &[index, argument] : one.arguments)
                count += argument.first == handle && argument.second == object->generation;
        append(" argument of %d", count);
    }
    text += "\n";
    if (write(history_file(), text.data(), text.size()) < 0)
        ERROR("history", "it cannot be written");
}

#define RETAIN_AND_RELEASE(NAME, HANDLE, TYPE)                                                                         \
    cl_int CL_API_CALL retain_##NAME(HANDLE handle)                                                                    \
    {                                                                                                                  \
        Scope scope("clRetain" #NAME, {handle});                                                                       \
        note_retained<TYPE>(handle);                                                                                   \
        return scope.checked(driver.clRetain##NAME(handle));                                                           \
    }                                                                                                                  \
    cl_int CL_API_CALL release_##NAME(HANDLE handle)                                                                   \
    {                                                                                                                  \
        Scope scope("clRelease" #NAME, {handle});                                                                      \
        if (history_file() >= 0 && TYPE != EVENT)                                                                      \
            write_history(handle);                                                                                     \
        note_released<TYPE>(handle, scope);                                                                            \
        return scope.checked(driver.clRelease##NAME(handle));                                                          \
    }
RETAIN_AND_RELEASE(Context, cl_context, CONTEXT)
RETAIN_AND_RELEASE(CommandQueue, cl_command_queue, QUEUE)
RETAIN_AND_RELEASE(MemObject, cl_mem, BUFFER)
RETAIN_AND_RELEASE(Program, cl_program, PROGRAM)
RETAIN_AND_RELEASE(Kernel, cl_kernel, KERNEL)
RETAIN_AND_RELEASE(Event, cl_event, EVENT)

#define CHECK_QUERY(NAME, HANDLE, INFO)                                                                                \
    cl_int CL_API_CALL query_##NAME(HANDLE handle, INFO info, size_t size, void *value, size_t *size_out)              \
    {                                                                                                                  \
        Scope scope("clGet" #NAME "Info", {handle});                                                                   \
        return scope.checked(driver.clGet##NAME##Info(handle, info, size, value, size_out));                           \
    }
CHECK_QUERY(Kernel, cl_kernel, cl_kernel_info)
CHECK_QUERY(MemObject, cl_mem, cl_mem_info)
CHECK_QUERY(Program, cl_program, cl_program_info)

// --------------------------------------------------------------------------------------- A CPU that says it is a GPU

// PoCL has another name then: the package uses internals of PoCL for CPUs.
cl_int CL_API_CALL platform_info(cl_platform_id platform, cl_platform_info name, size_t size, void *value,
                                 size_t *size_out)
{
    const char instead[] = "Strict GPU";
    char text[128] = "";
    driver.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof text, text, nullptr);
    if (!as_gpu || name != CL_PLATFORM_NAME || strncmp(text, "Portable Computing", 18))
        return driver.clGetPlatformInfo(platform, name, size, value, size_out);
    if (size_out)
        *size_out = sizeof instead;
    if (value && size < sizeof instead)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, instead, sizeof instead);
    return CL_SUCCESS;
}

template <class T> void set(void *value, T instead) { *static_cast<T *>(value) = instead; }

cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info name, size_t size, void *value, size_t *size_out)
{
    cl_int code = driver.clGetDeviceInfo(device, name, size, value, size_out);
    if (!as_gpu || code != CL_SUCCESS || !value)
        return code;
    switch (name) {
    case CL_DEVICE_TYPE: set<cl_device_type>(value, CL_DEVICE_TYPE_GPU); break;
    case CL_DEVICE_HOST_UNIFIED_MEMORY: set<cl_bool>(value, CL_FALSE); break;
    case CL_DEVICE_LOCAL_MEM_TYPE: set<cl_device_local_mem_type>(value, CL_LOCAL); break;
    case CL_DEVICE_LOCAL_MEM_SIZE: set<cl_ulong>(value, 48 << 10); break;
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN: set<cl_uint>(value, 8 * GPU_ALIGNMENT); break;
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: set<size_t>(value, 1024); break;
    case CL_DEVICE_MAX_PARAMETER_SIZE: set<size_t>(value, 4352); break;
    }
    return code;
}

cl_int CL_API_CALL device_ids(cl_platform_id platform, cl_device_type type, cl_uint count, cl_device_id *devices,
                              cl_uint *count_out)
{
    if (as_gpu && type & CL_DEVICE_TYPE_GPU)
        type = CL_DEVICE_TYPE_ALL;
    return driver.clGetDeviceIDs(platform, type, count, devices, count_out);
}

bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value && *value != '0';
}

}  // namespace

extern "C" void __libc_free(void *);

extern "C" void free(void *memory)
{
    if (memory && follows_free && ranges_in_use && !is_inside)
        check_freed(memory, malloc_usable_size(memory), "free");
    __libc_free(memory);
}

extern "C" int munmap(void *memory, size_t size)
{
    if (follows_free && ranges_in_use && !is_inside)
        check_freed(memory, size, "munmap");
    return syscall(SYS_munmap, memory, size);
}

extern "C" cl_int clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *size_out)
{
    if (name != CL_LAYER_API_VERSION || (value && size < sizeof(cl_layer_api_version)))
        return CL_INVALID_VALUE;
    if (value)
        set<cl_layer_api_version>(value, CL_LAYER_API_VERSION_100);
    if (size_out)
        *size_out = sizeof(cl_layer_api_version);
    return CL_SUCCESS;
}

extern "C" cl_int clInitLayer(cl_uint count, const cl_icd_dispatch *target, cl_uint *count_out,
                              const cl_icd_dispatch **layer_out)
{
    size_t known = std::min(count * sizeof(void *), sizeof driver);
    memcpy(&driver, target, known);
    layer = driver;
    as_gpu = is_set("OPENCL_CHECKS_AS_GPU");
    has_notes = is_set("OPENCL_CHECKS_NOTES");
    pthread_key_create(&of_thread, thread_ends);
    pthread_atfork(nullptr, nullptr, [] {
        is_forked = true;
        new (&mutex()) std::recursive_mutex;  // another thread of the parent may have held it
    });
    layer.clEnqueueReadBuffer = enqueue_read;
    layer.clEnqueueWriteBuffer = enqueue_write;
    layer.clEnqueueCopyBuffer = enqueue_copy;
    layer.clEnqueueFillBuffer = enqueue_fill;
    layer.clEnqueueMapBuffer = enqueue_map;
    layer.clEnqueueUnmapMemObject = enqueue_unmap;
    layer.clEnqueueMigrateMemObjects = enqueue_migrate;
    layer.clEnqueueMarkerWithWaitList = enqueue_marker;
    layer.clEnqueueBarrierWithWaitList = enqueue_barrier;
    layer.clEnqueueNDRangeKernel = enqueue_kernel;
    layer.clFinish = finish;
    layer.clFlush = flush;
    layer.clWaitForEvents = wait_for_events;
    layer.clGetEventInfo = event_info;
    layer.clGetEventProfilingInfo = profiling_info;
    layer.clSetEventCallback = event_callback;
    layer.clCreateContext = create_context;
    layer.clCreateCommandQueue = create_queue;
    layer.clCreateCommandQueueWithProperties = create_queue_with;
    layer.clCreateBuffer = create_buffer;
    layer.clCreateSubBuffer = create_part;
    layer.clCreateProgramWithSource = program_of_text;
    layer.clCreateProgramWithBinary = program_of_binary;
    layer.clBuildProgram = build_program;
    layer.clCreateKernel = create_kernel;
    layer.clCreateUserEvent = create_user_event;
    layer.clSetKernelArg = set_argument;
    layer.clGetKernelInfo = query_Kernel;
    layer.clGetMemObjectInfo = query_MemObject;
    layer.clGetProgramInfo = query_Program;
    layer.clGetPlatformInfo = platform_info;
    layer.clGetDeviceInfo = device_info;
    layer.clGetDeviceIDs = device_ids;
#define USE(NAME)                                                                                                      \
    layer.clRetain##NAME = retain_##NAME;                                                                              \
    layer.clRelease##NAME = release_##NAME
    USE(Context);
    USE(CommandQueue);
    USE(MemObject);
    USE(Program);
    USE(Kernel);
    USE(Event);
    follows_free = dlsym(RTLD_DEFAULT, "free") == reinterpret_cast<void *>(&free);
    *count_out = known / sizeof(void *);
    *layer_out = &layer;
    return CL_SUCCESS;
}
