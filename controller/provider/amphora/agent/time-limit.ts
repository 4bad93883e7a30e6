import { ProvisioningFault } from '../../provider.js'

/**
 * Ends waiting after a time. What was begun may still go on inside a driver, so `begun` is told first that it must begin nothing more.
 * @throws ProvisioningFault `time-limit`
 */
export async function withTimeLimit<T>(
  seconds: number,
  what: string,
  begin: (expired: () => boolean) => Promise<T>,
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
    return await Promise.race([begin(() => expired), limit])
  } finally {
    clearTimeout(timer)
  }
}
