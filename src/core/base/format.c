/* Text without stdio: formatting, comparing, copying and parsing (format.h has the contract). */
#include "base/format.h"

struct text {
    char *to;
    size_t room, length;
};

static void put(struct text *t, char c)
{
    if (t->length + 1 < t->room)
        t->to[t->length] = c;
    t->length++;
}

static void put_number(struct text *t, uint64_t value, unsigned base, bool negative, int width, char pad)
{
    char digits[24];
    int count = 0;

    do
        digits[count++] = "0123456789abcdef"[value % base];
    while (value /= base);
    if (negative && pad == '0') { /* the sign stands before zeros but behind blanks */
        put(t, '-');
        width--;
    } else if (negative) {
        digits[count++] = '-';
    }
    for (int i = count; i < width; i++)
        put(t, pad);
    while (count)
        put(t, digits[--count]);
}

static void put_string(struct text *t, const char *s, int most)
{
    if (!s)
        s = "(null)";
    for (int i = 0; (most < 0 || i < most) && s[i]; i++)
        put(t, s[i]);
}

struct directive {
    int width, most, size; /* size: 0 int, 1 long, 2 long long, 3 size_t */
    char pad;
};

static const char *parse(const char *at, struct directive *d, va_list *list)
{
    *d = (struct directive){.most = -1, .pad = ' '};
    if (*at == '0')
        d->pad = *at++;
    for (; *at >= '0' && *at <= '9'; at++)
        d->width = d->width * 10 + *at - '0';
    if (at[0] == '.' && at[1] == '*') {
        d->most = va_arg(*list, int);
        at += 2;
    }
    if (*at == 'z') {
        d->size = 3;
        at++;
    }
    for (; *at == 'l'; at++)
        d->size++;
    return at;
}

static void put_signed(struct text *t, const struct directive *d, va_list *list)
{
    int64_t v = d->size == 0   ? va_arg(*list, int)
                : d->size == 1 ? va_arg(*list, long)
                : d->size == 2 ? va_arg(*list, long long)
                               : (int64_t)va_arg(*list, size_t);
    put_number(t, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, 10, v < 0, d->width, d->pad);
}

static void put_unsigned(struct text *t, const struct directive *d, unsigned base, va_list *list)
{
    uint64_t v = d->size == 0   ? va_arg(*list, unsigned)
                 : d->size == 1 ? va_arg(*list, unsigned long)
                 : d->size == 2 ? va_arg(*list, unsigned long long)
                                : va_arg(*list, size_t);
    put_number(t, v, base, false, d->width, d->pad);
}

size_t base_format_list(char *to, size_t room, const char *format, va_list given)
{
    struct text t = {to, room, 0};
    struct directive d;
    va_list list;

    va_copy(list, given);
    for (const char *at = format; *at; at++) {
        if (*at != '%') {
            put(&t, *at);
            continue;
        }
        at = parse(at + 1, &d, &list);
        switch (*at) {
        case 's':
            put_string(&t, va_arg(list, const char *), d.most);
            break;
        case 'c':
            put(&t, (char)va_arg(list, int));
            break;
        case 'd':
        case 'i':
            put_signed(&t, &d, &list);
            break;
        case 'u':
            put_unsigned(&t, &d, 10, &list);
            break;
        case 'x':
            put_unsigned(&t, &d, 16, &list);
            break;
        case 'p':
            put(&t, '0');
            put(&t, 'x');
            put_number(&t, (uintptr_t)va_arg(list, const void *), 16, false, 0, ' ');
            break;
        default:
            put(&t, *at);
        }
    }
    va_end(list);
    if (room)
        to[t.length < room ? t.length : room - 1] = 0;
    return t.length;
}

size_t base_format(char *to, size_t room, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    size_t length = base_format_list(to, room, format, list);
    va_end(list);
    return length;
}

void base_append(char *to, size_t room, size_t *at, const char *format, ...)
{
    va_list list;

    if (*at >= room)
        return;
    va_start(list, format);
    *at += base_format_list(to + *at, room - *at, format, list);
    va_end(list);
    if (*at >= room)
        *at = room ? room - 1 : 0;
}

bool base_equal(const char *a, const char *b)
{
    if (!a || !b)
        return a == b;
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

void base_copy_text(char *to, size_t room, const char *from)
{
    size_t at = 0;
    base_append(to, room, &at, "%s", from ? from : "");
}

bool base_parse_u64(const char *text, uint64_t *value)
{
    uint64_t v = 0;

    if (!text || !*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || v > (UINT64_MAX - (uint64_t)(*text - '0')) / 10)
            return false;
        v = v * 10 + (uint64_t)(*text - '0');
    }
    *value = v;
    return true;
}
