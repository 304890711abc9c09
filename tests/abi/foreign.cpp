// The public handle inside and beside a foreign namespace comm, in C++.
#include "foreign.h"
namespace comm
{
struct communicator {
    int rank;
};
enum class result { ok };
} // namespace comm
#include <commstream/comm.h>

int foreign();
int foreign()
{
    comm::communicator world{4};
    comm_config config{};
    config.size = sizeof config;
    comm_request request = COMM_REQUEST_NONE;
    comm_result result = COMM_OK;
    return world.rank + config.rank + static_cast<int>(request.ticket) + static_cast<int>(result);
}
