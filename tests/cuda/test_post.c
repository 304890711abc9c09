/* File descriptors that go from one socket with an abstract name to another. What is not a letter, or has no descriptor, is no letter, and
 * a descriptor that is not wanted is closed. */
#define _GNU_SOURCE
#include "cuda/post.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static int owned;

static void own(const struct comm_env *env, int32_t descriptor, bool owns)
{
    (void)env;
    assert_true(descriptor >= 0);
    owned += owns ? 1 : -1;
}

static const struct comm_env env = {.own = own};

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int file_with(const char *text)
{
    int file = memfd_create("a file", MFD_CLOEXEC);

    assert_int_equal(pwrite(file, text, strlen(text), 0), strlen(text));
    return file;
}

static void descriptors_arrive(void **state)
{
    struct cuda_letter letter = {.secret = 7, .bytes = 9, .from = 3}, got;
    struct cuda_post to, from;
    char text[8] = "";
    int before = descriptors(), descriptor;

    (void)state;
    assert_true(cuda_post_open(&env, &to) && cuda_post_open(&env, &from));
    assert_int_equal(owned, 2);
    assert_memory_not_equal(to.name, from.name, sizeof to.name);
    assert_false(cuda_post_take(&to, &got, &descriptor));
    for (int i = 0; i < 3; i++) {
        int file = file_with(i == 1 ? "second" : "another");
        letter.from = i;
        assert_int_equal(cuda_post_send(&from, to.name, &letter, file), CUDA_POSTED);
        close(file); /* a letter has its own */
    }
    for (int i = 0; i < 3; i++) {
        assert_true(cuda_post_take(&to, &got, &descriptor));
        assert_true(got.secret == 7 && got.bytes == 9 && got.from == i);
        assert_true(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
        memset(text, 0, sizeof text);
        assert_true(pread(descriptor, text, sizeof text, 0) > 0);
        assert_string_equal(text, i == 1 ? "second" : "another");
        close(descriptor);
    }
    assert_false(cuda_post_take(&to, &got, &descriptor));
    cuda_post_close(&env, &to);
    cuda_post_close(&env, &to); /* nothing happens */
    cuda_post_close(&env, &from);
    assert_int_equal(owned, 0);
    assert_int_equal(descriptors(), before);
}

/* The receiver does not take them: at some time there is no room. A receiver that is gone is a failure. */
static void a_full_socket(void **state)
{
    struct cuda_letter letter = {.secret = 1}, got;
    struct cuda_post to, from;
    int before = descriptors(), file = file_with("x"), sent = 0, descriptor;

    (void)state;
    assert_true(cuda_post_open(&env, &to) && cuda_post_open(&env, &from));
    while (sent < 100000 && cuda_post_send(&from, to.name, &letter, file) == CUDA_POSTED)
        sent++;
    assert_in_range(sent, 1, 99999);
    assert_int_equal(cuda_post_send(&from, to.name, &letter, file), CUDA_POST_FULL);
    assert_true(cuda_post_take(&to, &got, &descriptor));
    close(descriptor);
    assert_int_equal(cuda_post_send(&from, to.name, &letter, file), CUDA_POSTED);
    cuda_post_close(&env, &to);
    assert_int_equal(cuda_post_send(&from, to.name, &letter, file), CUDA_POST_FAILED);
    cuda_post_close(&env, &from);
    close(file);
    assert_int_equal(descriptors(), before);
}

static void send_raw(const struct cuda_post *to, size_t bytes, int files)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control = {0};
    static const char text[256];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int list[4], file = file_with("stranger"), from = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct iovec piece = {(void *)(uintptr_t)text, bytes};
    struct msghdr message = {
        .msg_name = &name, .msg_namelen = offsetof(struct sockaddr_un, sun_path) + 6, .msg_iov = &piece, .msg_iovlen = 1};

    memcpy(name.sun_path, to->name, 6);
    for (int i = 0; i < files; i++)
        list[i] = file;
    if (files) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)files * sizeof(int));
        control.header =
            (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)files * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), list, (size_t)files * sizeof(int));
    }
    assert_int_equal(sendmsg(from, &message, 0), bytes);
    close(from);
    close(file);
}

static void what_is_no_letter(void **state)
{
    struct cuda_letter got;
    struct cuda_post to;
    int before = descriptors(), descriptor;

    (void)state;
    assert_true(cuda_post_open(&env, &to));
    for (size_t bytes = 0; bytes <= 256; bytes += 8) {
        for (int files = 0; files <= 4; files++) {
            send_raw(&to, bytes, files);
            assert_true(cuda_post_take(&to, &got, &descriptor));
            assert_int_equal(descriptor >= 0, bytes == sizeof got && files == 1); /* as long as a letter: its secret is zero */
            if (descriptor >= 0)
                close(descriptor);
        }
    }
    assert_false(cuda_post_take(&to, &got, &descriptor));
    cuda_post_close(&env, &to);
    assert_int_equal(descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_arrive),
        cmocka_unit_test(a_full_socket),
        cmocka_unit_test(what_is_no_letter),
    };
    return cmocka_run_group_tests_name("cuda_post", tests, NULL, NULL);
}
