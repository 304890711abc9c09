#include "meeting.hpp"

#include <cstdio>
#include <cstring>
#include <random>

#include <c10/util/Exception.h>

namespace commstream
{

namespace
{

const char *const root_key = "commstream/attempt";

} // namespace

std::string random_word()
{
    std::random_device random;
    char text[40];
    snprintf(text, sizeof text, "%08x%08x%08x%08x", random(), random(), random(), random());
    return text;
}

Meeting::Meeting(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout)
    : store_(store), rank_(rank), size_(size), timeout_(timeout), patience_(timeout)
{
}

std::string Meeting::key(const std::string &what, int rank) const
{
    return "commstream/" + attempt_ + "/" + what + "/" + std::to_string(rank);
}

void Meeting::set(const std::string &key, const std::vector<uint8_t> &value)
{
    store_->set(key, value);
    keys_.push_back(key);
}

void Meeting::forget()
{
    for (const std::string &key : keys_)
        remove_key(*store_, key);
    keys_.clear();
}

void Meeting::missing(const std::vector<int> &ranks) const
{
    std::string names;
    for (int r : ranks)
        names += (names.empty() ? "" : ", ") + std::to_string(r);
    C10_THROW_ERROR(DistBackendError, c10::str("commstream: rank ", rank_, " of ", size_, " waited ", timeout_.count(),
                                               " ms for ranks to come to the store; missing: ", names));
}

void Meeting::open()
{
    if (size_ == 1)
        return;
    if (rank_ == 0)
        welcome_all();
    else
        be_welcomed();
}

void Meeting::welcome_all()
{
    attempt_ = random_word();
    set(root_key, bytes_of(attempt_));
    std::vector<int> absent;
    for (int r = 1; r < size_; r++)
        absent.push_back(r);
    while (true) {
        std::vector<int> still;
        for (int r : absent)
            if (store_->check({key("hello", r)}))
                set(key("welcome", r), store_->get(key("hello", r)));
            else
                still.push_back(r);
        if (still.size() < absent.size())
            patience_.hope();
        absent = still;
        if (absent.empty())
            return;
        if (!patience_.nap())
            missing(absent);
    }
}

void Meeting::be_welcomed()
{
    std::string word = random_word();
    do {
        if (!store_->check({root_key}))
            continue;
        std::string attempt = text_of(store_->get(root_key));
        if (attempt != attempt_) {
            attempt_ = attempt;
            set(key("hello", rank_), bytes_of(word));
        }
        if (store_->check({key("welcome", rank_)}) && text_of(store_->get(key("welcome", rank_))) == word)
            return;
    } while (patience_.nap());
    missing({0});
}

void Meeting::allgather(const uint8_t *in, size_t bytes, uint8_t *out)
{
    std::string round = std::to_string(round_++);
    set(key(round, rank_), std::vector<uint8_t>(in, in + bytes));
    for (int r = 0; r < size_; r++, out += bytes) {
        std::vector<uint8_t> value = store_->get(key(round, r));
        TORCH_CHECK(value.size() == bytes, "store key ", key(round, r), " has ", value.size(), " bytes; expected ", bytes);
        memcpy(out, value.data(), bytes);
    }
}

int Meeting::exchange(void *meeting, const void *in, size_t bytes, void *out)
{
    auto *self = static_cast<Meeting *>(meeting);
    try {
        self->allgather(static_cast<const uint8_t *>(in), bytes, static_cast<uint8_t *>(out));
        return 0;
    } catch (const std::exception &e) {
        self->error_ = e.what();
        return 1;
    }
}

} // namespace commstream
