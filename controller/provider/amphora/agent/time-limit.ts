import { ProvisioningFault } from '../../provider.js'

/**
 * Stops waiting for a task after a time limit. The task may keep running inside a driver; `expired` tells it to start
 * nothing more.
 * @throws ProvisioningFault `time-limit`
 */
export async function withTimeLimit<T>(
  seconds: number,
  what: string,
  task: (expired: () => boolean) => Promise<T>,
): Promise<T> {
  let expired = false
  let timer: NodeJS.Timeout | undefined
  const limit = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      expired = true
      reject(new ProvisioningFault('time-limit', `${what} took longer than ${seconds} s.`))
    }, seconds * 1000)
  })
  try {
    return await Promise.race([task(() => expired), limit])
  } finally {
    clearTimeout(timer)
  }
}
