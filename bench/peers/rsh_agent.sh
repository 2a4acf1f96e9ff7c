#!/bin/sh
# Stands in for ssh when mpirun starts its remote rank: `rsh_agent.sh [options] HOST COMMAND…` runs the
# command in the network namespace PEERS_NAMESPACE. Both ends are one machine, so the far end gets a host name
# of its own: by equal names an MPI would take both ranks for neighbors that share memory.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
# As ssh does: the words are joined and a shell reads them again.
exec ip netns exec "$PEERS_NAMESPACE" unshare --uts sh -c "hostname 'peer-$host' && exec $*"
