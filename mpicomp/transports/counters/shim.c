/* Counts what this process hands to MPI: messages from point to point, by receiver; and, on the
 * communicator called "mpicomp messages", broadcasts of which it is the root, and sums over all ranks.
 * See shim.py. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#if defined(OPEN_MPI) != FOR_OPEN_MPI
#error "this mpicc belongs to another MPI than mpi4py uses"
#endif

struct count { long long bytes, messages; };

static struct count *to; /* by rank in MPI_COMM_WORLD */
static struct count as_root, as_summand;
static int looking_away;

long long mpicomp_count(int rank, int what)
{
    static const struct count none;
    const struct count *c = rank == -1 ? &as_root : rank == -2 ? &as_summand : to ? &to[rank] : &none;
    return what ? c->messages : c->bytes;
}

void mpicomp_look_away(int away) { looking_away = away; }

static void add(struct count *c, long long n, MPI_Datatype type)
{
    int size;
    PMPI_Type_size(type, &size);
    __atomic_fetch_add(&c->bytes, n * size, __ATOMIC_RELAXED); /* a watchdog's thread sends as well */
    __atomic_fetch_add(&c->messages, 1, __ATOMIC_RELAXED);
}

static void sent(long long n, MPI_Datatype type, int rank, MPI_Comm comm)
{
    MPI_Group group, world;
    int ranks, peer;
    if (looking_away || rank == MPI_PROC_NULL)
        return;
    if (!to) {
        PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
        to = calloc(ranks, sizeof *to);
    }
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(group, 1, &rank, world, &peer);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    add(&to[peer], n, type);
}

static int has_messages(MPI_Comm comm)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    PMPI_Comm_get_name(comm, name, &length);
    return !strcmp(name, "mpicomp messages");
}

static void broadcast(long long n, MPI_Datatype type, int root, MPI_Comm comm)
{
    int rank;
    PMPI_Comm_rank(comm, &rank);
    if (rank == root && has_messages(comm))
        add(&as_root, n, type);
}

static void summed(long long n, MPI_Datatype type, MPI_Comm comm)
{
    if (has_messages(comm))
        add(&as_summand, n, type);
}

/* Each function twice, with counts of type int and, from MPI 4 on, MPI_Count. */
#define BLOCKING(name, count_type)                                                                         \
    int MPI_##name(const void *b, count_type n, MPI_Datatype t, int rank, int tag, MPI_Comm c)             \
    {                                                                                                      \
        sent(n, t, rank, c);                                                                               \
        return PMPI_##name(b, n, t, rank, tag, c);                                                         \
    }
#define NONBLOCKING(name, count_type)                                                                      \
    int MPI_##name(const void *b, count_type n, MPI_Datatype t, int rank, int tag, MPI_Comm c,             \
                   MPI_Request *r)                                                                         \
    {                                                                                                      \
        sent(n, t, rank, c);                                                                               \
        return PMPI_##name(b, n, t, rank, tag, c, r);                                                      \
    }
#define BROADCAST(name, count_type)                                                                        \
    int MPI_##name(void *b, count_type n, MPI_Datatype t, int root, MPI_Comm c)                            \
    {                                                                                                      \
        broadcast(n, t, root, c);                                                                          \
        return PMPI_##name(b, n, t, root, c);                                                              \
    }
#define IBROADCAST(name, count_type)                                                                       \
    int MPI_##name(void *b, count_type n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *r)            \
    {                                                                                                      \
        broadcast(n, t, root, c);                                                                          \
        return PMPI_##name(b, n, t, root, c, r);                                                           \
    }
#define SUM(name, count_type)                                                                              \
    int MPI_##name(const void *b, void *s, count_type n, MPI_Datatype t, MPI_Op op, MPI_Comm c)            \
    {                                                                                                      \
        summed(n, t, c);                                                                                   \
        return PMPI_##name(b, s, n, t, op, c);                                                             \
    }

BLOCKING(Send, int)
BLOCKING(Bsend, int)
BLOCKING(Rsend, int)
BLOCKING(Ssend, int)
NONBLOCKING(Isend, int)
NONBLOCKING(Ibsend, int)
NONBLOCKING(Irsend, int)
NONBLOCKING(Issend, int)
BROADCAST(Bcast, int)
IBROADCAST(Ibcast, int)
SUM(Allreduce, int)
#if MPI_VERSION >= 4
BLOCKING(Send_c, MPI_Count)
BLOCKING(Bsend_c, MPI_Count)
BLOCKING(Rsend_c, MPI_Count)
BLOCKING(Ssend_c, MPI_Count)
NONBLOCKING(Isend_c, MPI_Count)
NONBLOCKING(Ibsend_c, MPI_Count)
NONBLOCKING(Irsend_c, MPI_Count)
NONBLOCKING(Issend_c, MPI_Count)
BROADCAST(Bcast_c, MPI_Count)
IBROADCAST(Ibcast_c, MPI_Count)
SUM(Allreduce_c, MPI_Count)
#endif
