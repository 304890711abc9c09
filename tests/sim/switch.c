/* Switches stacks without the kernel: pushes the registers that a call must preserve, exchanges the stack pointers, and
 * pops the registers. */
#include "sim/inside.h"

#if defined(__x86_64__)
/* rbx, rbp, r12 to r15, and the control words of x87 and SSE, which a callee must preserve too. */
__asm__(".text\n"
        ".globl sim_switch\n"
        ".type sim_switch, @function\n"
        "sim_switch:\n"
        "    endbr64\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size sim_switch, .-sim_switch\n");

void *sim_context(char *stack, size_t bytes, void (*entry)(void))
{
    uint64_t *top = (uint64_t *)(void *)(stack + bytes);
    uint32_t control[2] = {0x1f80, 0x037f}; /* values of a new thread */

    *--top = 0; /* entry's return address: it never returns; the stack is aligned as after a call */
    *--top = (uint64_t)(uintptr_t)entry;
    for (int i = 0; i < 6; i++)
        *--top = 0;
    *--top = (uint64_t)control[1] << 32 | control[0];
    return top;
}
#elif defined(__aarch64__)
/* x19 to x30, and the lower halves of v8 to v15. */
__asm__(".text\n"
        ".globl sim_switch\n"
        ".type sim_switch, %function\n"
        "sim_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size sim_switch, .-sim_switch\n");

void *sim_context(char *stack, size_t bytes, void (*entry)(void))
{
    uint64_t *top = (uint64_t *)(void *)(stack + bytes) - 20;

    for (int i = 0; i < 20; i++)
        top[i] = 0;
    top[11] = (uint64_t)(uintptr_t)entry; /* x30 */
    return top;
}
#else
#    error "the simulator switches stacks on x86-64 and aarch64"
#endif
