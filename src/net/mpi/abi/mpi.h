/*
 * The part of MPI's standard ABI that net/mpi uses: MPI: A Message-Passing Interface Standard, version 5.0, chapter 20 "Application Binary
 * Interface (ABI)". Its tables give the types of handles, the layout of MPI_Status and the value of every constant. A library with this ABI
 * (libmpi_abi.so) can be opened at run time, so the build needs no MPI. In code that is compiled with this file, MPI_Name is a pointer that
 * mpi_library_open sets.
 */
#ifndef NET_MPI_ABI_MPI_H
#define NET_MPI_ABI_MPI_H

#include <stdint.h>

#define MPI_ABI_VERSION 1

/* 20.2: integers */
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;

/* 20.3: a handle is a pointer to an incomplete type. Handles of predefined objects are small numbers. */
typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef struct MPI_ABI_Group *MPI_Group;
typedef struct MPI_ABI_Info *MPI_Info;
typedef struct MPI_ABI_Op *MPI_Op;
typedef struct MPI_ABI_Request *MPI_Request;

typedef struct {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    int MPI_internal[5];
} MPI_Status;

#define MPI_OP_NULL ((MPI_Op)0x20)
#define MPI_SUM ((MPI_Op)0x21)
#define MPI_MIN ((MPI_Op)0x22)
#define MPI_MAX ((MPI_Op)0x23)
#define MPI_PROD ((MPI_Op)0x24)
#define MPI_BAND ((MPI_Op)0x28)
#define MPI_BOR ((MPI_Op)0x29)
#define MPI_BXOR ((MPI_Op)0x2a)
#define MPI_LAND ((MPI_Op)0x30)
#define MPI_LOR ((MPI_Op)0x31)
#define MPI_LXOR ((MPI_Op)0x32)
#define MPI_MINLOC ((MPI_Op)0x38)
#define MPI_MAXLOC ((MPI_Op)0x39)
#define MPI_COMM_NULL ((MPI_Comm)0x100)
#define MPI_COMM_WORLD ((MPI_Comm)0x101)
#define MPI_COMM_SELF ((MPI_Comm)0x102)
#define MPI_INFO_NULL ((MPI_Info)0x130)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x143)
#define MPI_REQUEST_NULL ((MPI_Request)0x180)
#define MPI_DATATYPE_NULL ((MPI_Datatype)0x200)
#define MPI_FLOAT ((MPI_Datatype)0x210)
#define MPI_C_FLOAT_COMPLEX ((MPI_Datatype)0x212)
#define MPI_DOUBLE ((MPI_Datatype)0x214)
#define MPI_C_DOUBLE_COMPLEX ((MPI_Datatype)0x216)
#define MPI_FLOAT_INT ((MPI_Datatype)0x228)
#define MPI_2INT ((MPI_Datatype)0x22b)
#define MPI_INT8_T ((MPI_Datatype)0x240)
#define MPI_UINT8_T ((MPI_Datatype)0x241)
#define MPI_BYTE ((MPI_Datatype)0x247)
#define MPI_INT16_T ((MPI_Datatype)0x248)
#define MPI_UINT16_T ((MPI_Datatype)0x249)
#define MPI_INT32_T ((MPI_Datatype)0x250)
#define MPI_UINT32_T ((MPI_Datatype)0x251)
#define MPI_INT64_T ((MPI_Datatype)0x258)
#define MPI_UINT64_T ((MPI_Datatype)0x259)

/* 20.4: numbers */
enum {
    MPI_SUCCESS = 0,
    MPI_ERR_TRUNCATE = 15,
    MPI_ERR_IN_STATUS = 19,
    MPI_UNDEFINED = -32766,
    MPI_ANY_SOURCE = -1,
    MPI_THREAD_SINGLE = 0,
    MPI_THREAD_FUNNELED = 1024,
    MPI_THREAD_SERIALIZED = 2048,
    MPI_THREAD_MULTIPLE = 4096,
    MPI_TAG_UB = 501,
    MPI_MAX_ERROR_STRING = 512,
    MPI_MAX_LIBRARY_VERSION_STRING = 8192
};
#define MPI_IN_PLACE ((void *)1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)

typedef void MPI_User_function(void *, void *, int *, MPI_Datatype *);
typedef int MPI_Comm_copy_attr_function(MPI_Comm, int, void *, void *, void *, int *);
typedef int MPI_Comm_delete_attr_function(MPI_Comm, int, void *, void *);
#define MPI_COMM_NULL_COPY_FN ((MPI_Comm_copy_attr_function *)0)

/* The calls; those that count with MPI_Count and the persistent ones are in net/mpi/large.h. */
#define MPI_ABI_CALLS(X)                                                                                                                   \
    X(Abi_get_version, (int *, int *))                                                                                                     \
    X(Init_thread, (int *, char ***, int, int *))                                                                                          \
    X(Initialized, (int *))                                                                                                                \
    X(Finalize, (void))                                                                                                                    \
    X(Finalized, (int *))                                                                                                                  \
    X(Query_thread, (int *))                                                                                                               \
    X(Is_thread_main, (int *))                                                                                                             \
    X(Get_library_version, (char *, int *))                                                                                                \
    X(Error_class, (int, int *))                                                                                                           \
    X(Error_string, (int, char *, int *))                                                                                                  \
    X(Comm_rank, (MPI_Comm, int *))                                                                                                        \
    X(Comm_size, (MPI_Comm, int *))                                                                                                        \
    X(Comm_group, (MPI_Comm, MPI_Group *))                                                                                                 \
    X(Comm_create_group, (MPI_Comm, MPI_Group, int, MPI_Comm *))                                                                           \
    X(Comm_free, (MPI_Comm *))                                                                                                             \
    X(Comm_set_errhandler, (MPI_Comm, MPI_Errhandler))                                                                                     \
    X(Comm_create_keyval, (MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *, int *, void *))                                 \
    X(Comm_set_attr, (MPI_Comm, int, void *))                                                                                              \
    X(Comm_get_attr, (MPI_Comm, int, void *, int *))                                                                                       \
    X(Group_incl, (MPI_Group, int, const int *, MPI_Group *))                                                                              \
    X(Group_free, (MPI_Group *))                                                                                                           \
    X(Start, (MPI_Request *))                                                                                                              \
    X(Request_free, (MPI_Request *))                                                                                                       \
    X(Test, (MPI_Request *, int *, MPI_Status *))                                                                                          \
    X(Isend, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))                                                         \
    X(Irecv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))                                                               \
    X(Cancel, (MPI_Request *))                                                                                                             \
    X(Iprobe, (int, int, MPI_Comm, int *, MPI_Status *))                                                                                   \
    X(Get_count, (const MPI_Status *, MPI_Datatype, int *))                                                                                \
    X(Testsome, (int, MPI_Request *, int *, int *, MPI_Status *))                                                                          \
    X(Reduce_local, (const void *, void *, int, MPI_Datatype, MPI_Op))                                                                     \
    X(Op_create, (MPI_User_function *, int, MPI_Op *))                                                                                     \
    X(Barrier, (MPI_Comm))                                                                                                                 \
    X(Allreduce, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm))                                                              \
    X(Allgather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm))                                                   \
    X(Ibarrier, (MPI_Comm, MPI_Request *))

struct mpi_abi {
#define MPI_ABI_MEMBER(name, parameters) int(*name) parameters;
    MPI_ABI_CALLS(MPI_ABI_MEMBER)
#undef MPI_ABI_MEMBER
};
extern struct mpi_abi mpi_abi;

#define MPI_Abi_get_version mpi_abi.Abi_get_version
#define MPI_Init_thread mpi_abi.Init_thread
#define MPI_Initialized mpi_abi.Initialized
#define MPI_Finalize mpi_abi.Finalize
#define MPI_Finalized mpi_abi.Finalized
#define MPI_Query_thread mpi_abi.Query_thread
#define MPI_Is_thread_main mpi_abi.Is_thread_main
#define MPI_Get_library_version mpi_abi.Get_library_version
#define MPI_Error_class mpi_abi.Error_class
#define MPI_Error_string mpi_abi.Error_string
#define MPI_Comm_rank mpi_abi.Comm_rank
#define MPI_Comm_size mpi_abi.Comm_size
#define MPI_Comm_group mpi_abi.Comm_group
#define MPI_Comm_create_group mpi_abi.Comm_create_group
#define MPI_Comm_free mpi_abi.Comm_free
#define MPI_Comm_set_errhandler mpi_abi.Comm_set_errhandler
#define MPI_Comm_create_keyval mpi_abi.Comm_create_keyval
#define MPI_Comm_set_attr mpi_abi.Comm_set_attr
#define MPI_Comm_get_attr mpi_abi.Comm_get_attr
#define MPI_Group_incl mpi_abi.Group_incl
#define MPI_Group_free mpi_abi.Group_free
#define MPI_Start mpi_abi.Start
#define MPI_Request_free mpi_abi.Request_free
#define MPI_Test mpi_abi.Test
#define MPI_Isend mpi_abi.Isend
#define MPI_Irecv mpi_abi.Irecv
#define MPI_Cancel mpi_abi.Cancel
#define MPI_Iprobe mpi_abi.Iprobe
#define MPI_Get_count mpi_abi.Get_count
#define MPI_Testsome mpi_abi.Testsome
#define MPI_Reduce_local mpi_abi.Reduce_local
#define MPI_Op_create mpi_abi.Op_create
#define MPI_Barrier mpi_abi.Barrier
#define MPI_Allreduce mpi_abi.Allreduce
#define MPI_Allgather mpi_abi.Allgather
#define MPI_Ibarrier mpi_abi.Ibarrier

#endif
