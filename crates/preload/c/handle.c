/* The address of this object names the library to libc: pthread_atfork(3) and thread-exit handlers. Usually gcc's start files have
 * it, which the library is linked without. */
__attribute__((visibility("hidden"))) void *__dso_handle;
