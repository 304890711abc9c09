/* A module whose library is not there: what a machine has whose MPI was removed. As the library, it has one function; as the module, it
 * calls it, so that the loader needs it. */
#if defined(IS_LIBRARY)
int gone_function(void);
int gone_function(void)
{
    return 1;
}
#else
int gone_function(void);
int comm_module_entry(void);
int comm_module_entry(void)
{
    return gone_function();
}
#endif
