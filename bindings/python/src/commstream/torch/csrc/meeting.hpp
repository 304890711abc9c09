/*
 * How ranks meet through a c10d store.
 *
 * A store may still have the keys of an earlier attempt with the same names: torchrun keeps its store when it restarts
 * workers. So rank 0 makes a random name for this attempt, and every other rank proves that it has read that very name:
 * it says hello under it with a random word of its own, and goes on when rank 0 has welcomed that word. What was left
 * behind has another name or another word.
 */
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "store.hpp"

namespace commstream
{

/* A random word in hexadecimal. */
std::string random_word();

class Meeting
{
  public:
    Meeting(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout);

    /* Waits until all ranks of this attempt have come. Throws, and names who is missing. */
    void open();
    /* An allgather, as config.exchange is one. Returns 0, or 1 and keeps the error. */
    static int exchange(void *meeting, const void *in, size_t bytes, void *out);
    const std::string &error() const { return error_; }
    /* The name that all ranks of this attempt have read, and no others; empty where there is one rank. */
    const std::string &attempt() const { return attempt_; }
    /* Removes this rank's keys, which all ranks have read. */
    void forget();

  private:
    void welcome_all();
    void be_welcomed();
    void allgather(const uint8_t *in, size_t bytes, uint8_t *out);
    std::string key(const std::string &what, int rank) const;
    void set(const std::string &key, const std::vector<uint8_t> &value);
    [[noreturn]] void missing(const std::vector<int> &ranks) const;

    c10::intrusive_ptr<c10d::Store> store_;
    int rank_, size_;
    std::chrono::milliseconds timeout_;
    Patience patience_;
    std::string attempt_;
    std::vector<std::string> keys_; /* that this rank has set */
    uint64_t round_ = 0;
    std::string error_;
};

} // namespace commstream
