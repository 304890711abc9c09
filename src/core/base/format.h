/* Text without stdio. Supports %s %.*s %c %p %d %i %u %x %% with l, ll and z, and a width and zero padding for numbers;
 * nothing else. Always ends the text with a zero byte if room > 0. Returns the length that the whole text would have,
 * as snprintf does. */
#ifndef BASE_FORMAT_H
#define BASE_FORMAT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

size_t base_format(char *to, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
size_t base_format_list(char *to, size_t room, const char *format, va_list list);
/* Appends at *at and advances *at; never writes past room. */
void base_append(char *to, size_t room, size_t *at, const char *format, ...) __attribute__((format(printf, 4, 5)));
bool base_equal(const char *a, const char *b);                /* compares strings; NULL equals only NULL */
void base_copy_text(char *to, size_t room, const char *from); /* cuts what does not fit, always ends with a zero byte; from NULL: empty */
/* Parses an unsigned decimal number that fills the whole text. */
bool base_parse_u64(const char *text, uint64_t *value);

#endif
