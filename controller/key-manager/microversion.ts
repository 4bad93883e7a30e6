import { MicroversionFault } from './faults.js'

/** The newest minor version of v1: 1.1 shows the consumers of secrets, 1.2 refuses to delete a secret that has some. */
export const NEWEST_MINOR = 2

export const MICROVERSION_HEADER = 'OpenStack-API-Version'

/**
 * The minor version that a header asks for: `key-manager 1.1`, `key-manager latest`, with entries of other services beside it. Pure.
 * @param header '' when there is none
 * @throws MicroversionFault 400 when it cannot be read, 406 when it is out of range
 */
export function requestedMinor(header: string): number {
  const [version] = header.split(',').flatMap(entry => {
    const [, service = '', asked = ''] = /^(\S+)\s+(.+)$/s.exec(entry.trim()) ?? []
    return service.toLowerCase() === 'key-manager' ? [asked.toLowerCase()] : []
  })
  if (version === undefined) return 0
  if (version === 'latest') return NEWEST_MINOR
  const [, major, minor] = /^(\d+)\.(\d+)$/.exec(version) ?? []
  if (minor === undefined) {
    throw new MicroversionFault(400, `The microversion "${version.slice(0, 100)}" is not of the form 1.2.`)
  }
  if (Number(major) !== 1 || Number(minor) > NEWEST_MINOR) {
    const asked = version.slice(0, 100)
    throw new MicroversionFault(406, `The microversion ${asked} is not between 1.0 and 1.${NEWEST_MINOR}.`)
  }
  return Number(minor)
}
