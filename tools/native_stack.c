/* Writes the stack of C functions to stderr when a process is ended by a fault, and goes on as before.
 *
 * cc -shared -fPIC -o native_stack.so native_stack.c; LD_PRELOAD=./native_stack.so python -X faulthandler ...
 *
 * Python's fault handler writes the Python functions first, and calls the handler that was there before: this one.
 */
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

enum { FRAMES = 60, STACK_BYTES = 1 << 16 };

static char own_stack[STACK_BYTES];

static void write_stack(int number)
{
    void *frames[FRAMES];
    static const char title[] = "\nStack of C functions (most recent call first):\n";
    if (write(2, title, sizeof title - 1) > 0)
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES), 2);
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((constructor)) static void install(void)
{
    void *frame;
    struct sigaction action = {.sa_handler = write_stack, .sa_flags = SA_ONSTACK | SA_NODEFER};
    const stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    backtrace(&frame, 1); /* loads what it needs: memory cannot be allocated in a handler */
    sigaltstack(&stack, 0);
    for (unsigned k = 0; k < sizeof numbers / sizeof *numbers; k++)
        sigaction(numbers[k], &action, 0);
}
