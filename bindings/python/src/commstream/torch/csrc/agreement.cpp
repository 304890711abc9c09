#include "agreement.hpp"

#include <sstream>

#include <c10/util/Exception.h>

namespace commstream
{

namespace
{

const char *const agreed = "agreed", *const refused = "refused ";

std::string voter(int rank)
{
    return "vote/" + std::to_string(rank);
}

std::string text_of(const Vote &vote)
{
    return c10::str(vote.sent, " ", vote.received, " ", vote.against);
}

Vote vote_in(const std::string &said)
{
    std::istringstream text(said);
    Vote vote;
    text >> vote.sent >> vote.received;
    text.get();
    std::getline(text, vote.against, '\0');
    return vote;
}

/* Empty: what all said hinders nothing. */
std::string judge(const std::vector<Vote> &votes)
{
    std::string refusal;
    uint64_t sent = 0, received = 0;
    for (size_t r = 0; r < votes.size(); r++) {
        sent += votes[r].sent;
        received += votes[r].received;
        if (!votes[r].against.empty())
            refusal += c10::str(refusal.empty() ? "" : "; ", "rank ", r, ": ", votes[r].against);
    }
    if (refusal.empty() && sent != received)
        refusal = c10::str("messages: ", sent, " were sent, ", received, " received; expected that all are received first");
    return refusal;
}

} // namespace

Agreement::Agreement(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size) : store_(store), rank_(rank), size_(size) {}

std::string Agreement::key(const std::string &what) const
{
    return std::to_string(round_) + "/" + what;
}

/* An empty text is an agreement, as for reach(). */
std::optional<std::string> Agreement::decision()
{
    if (!store_->check({key("decision")}))
        return std::nullopt;
    std::string made = text_of(store_->get(key("decision")));
    return made == agreed ? "" : made.substr(std::string(refused).size());
}

std::string Agreement::decide(const std::string &refusal)
{
    store_->compareSet(key("decision"), {}, bytes_of(refusal.empty() ? agreed : refused + refusal));
    return *decision();
}

std::optional<std::string> Agreement::count()
{
    std::vector<std::string> keys;
    for (int r = 0; r < size_; r++)
        keys.push_back(key(voter(r)));
    if (!store_->check(keys))
        return std::nullopt;
    std::vector<Vote> votes;
    for (const std::string &each : keys)
        votes.push_back(vote_in(text_of(store_->get(each))));
    return judge(votes);
}

std::string Agreement::absent()
{
    std::string names;
    for (int r = 0; r < size_; r++)
        if (!store_->check({key(voter(r))}))
            names += c10::str(names.empty() ? "" : ", ", r);
    return names.empty() ? "none, but rank 0 has not decided" : names;
}

std::string Agreement::reach(const Vote &vote, std::chrono::milliseconds limit, const std::function<std::string()> &trouble)
{
    if (size_ == 1)
        return judge({vote});
    for (round_ = 0;; round_++) {
        std::optional<std::string> made = decision();
        if (!made)
            break;
        if (made->empty())
            return "";
    }
    store_->set(key(voter(rank_)), bytes_of(text_of(vote)));
    Patience patience(limit);
    while (true) {
        if (std::optional<std::string> made = decision())
            return *made;
        if (rank_ == 0)
            if (std::optional<std::string> counted = count())
                return decide(*counted);
        if (std::string why = trouble(); !why.empty())
            return decide(c10::str("rank ", rank_, ": ", why));
        if (!patience.nap())
            return decide(c10::str("rank ", rank_, " waited ", limit.count(), " ms for the other ranks to call; missing: ", absent()));
    }
}

void Agreement::forget()
{
    for (; size_ > 1 && round_ >= 0; round_--) {
        remove_key(*store_, key(voter(rank_)));
        if (rank_ == 0)
            remove_key(*store_, key("decision"));
    }
    round_ = 0;
}

} // namespace commstream
