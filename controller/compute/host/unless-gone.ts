/**
 * Reads something that may disappear at any time, such as a process in /proc.
 * @returns `otherwise` if it is gone
 * @throws Error for any other failure, such as too many open files
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
