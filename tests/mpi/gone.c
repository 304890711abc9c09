/* A module whose library is missing, as on a machine from which MPI was removed. Compiled as the library, this file defines one function.
 * Compiled as the module, it calls that function, so the loader needs the library. */
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
