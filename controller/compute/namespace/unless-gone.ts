/**
 * Reads what may be gone at any time, such as a process in /proc.
 * @throws Error for everything else, such as too many open files: that says nothing about what was to be read
 */
export function unlessGone<T>(read: () => T, otherwise: T): T {
  try {
    return read()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') return otherwise
    throw error
  }
}
