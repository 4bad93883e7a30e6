import { mkdtempSync, rmSync } from 'node:fs'

/** Runs `work` with a new directory, which is removed however the work and this process end, except by SIGKILL. */
export async function withTemporaryDirectory<T>(prefix: string, work: (path: string) => Promise<T>): Promise<T> {
  const path = mkdtempSync(prefix)
  const remove = () => rmSync(path, { recursive: true, force: true })
  process.once('exit', remove)
  try {
    return await work(path)
  } finally {
    process.off('exit', remove)
    remove()
  }
}
