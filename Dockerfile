# The library, its tools and the demo in a small image; docs/how-to/containers.md explains it.
#
#   docker build -t commstream .                        # CMD trains a network on 4 ranks
#   docker build -t commstream-mpi --target mpi .       # with Open MPI and an ssh daemon, for docs/how-to/kubernetes.md
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
        gcc libc6-dev cmake ninja-build pkg-config libssl-dev liburing-dev libpmix-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr/local -DCMAKE_INSTALL_LIBDIR=lib \
        -DCOMM_TESTS=OFF -DCOMM_EXAMPLES=ON \
    && cmake --build /build && DESTDIR=/out cmake --install /build \
    && install /build/bin/train /build/bin/ex_hello /out/usr/local/bin \
    && install -D -m 644 /src/examples/train/digits.txt /out/src/examples/train/digits.txt # where the demo looks for its data

FROM debian:bookworm-slim AS run
RUN apt-get update && apt-get install -y --no-install-recommends libssl3 liburing2 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 ranks
COPY --from=build /out/ /
RUN ldconfig
USER ranks
WORKDIR /home/ranks
CMD ["comm-run", "-n", "4", "train"]

# The ssh daemon runs as the user ranks, at port 2222, with the keys that are mounted at ~/.ssh.
FROM run AS mpi
USER root
RUN apt-get update && apt-get install -y --no-install-recommends openmpi-bin openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* \
    && printf 'Host *\n    Port 2222\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n    LogLevel ERROR\n' \
        > /etc/ssh/ssh_config.d/ranks.conf \
    && printf 'Port 2222\nHostKey ~/.ssh/id_rsa\nPidFile /tmp/sshd.pid\nStrictModes no\nUsePAM no\n' \
        | sed 's,~,/home/ranks,' > /etc/ssh/sshd_ranks
USER ranks
CMD ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/sshd_ranks"]

FROM run
