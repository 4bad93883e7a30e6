import { ApiError } from '../http/errors.js'

export const MICROVERSION_HEADER = 'OpenStack-API-Version'

/** `service` is the service type before the version in the header; versions range from 1.0 to 1.`newest`. */
export type Microversions = { service: string; newest: number }

/** An error about the requested microversion. Dialects may shape it differently. */
export class MicroversionError extends ApiError {}

/**
 * The minor version that a header requests: `key-manager 1.1` or `key-manager latest`, among entries of other services.
 * Pure.
 * @param header '' when absent
 * @throws MicroversionError 400 when the header is malformed, 406 when the version is out of range
 */
export function requestedMinor(header: string, { service, newest }: Microversions): number {
  const [version] = header.split(',').flatMap(entry => {
    const [, named = '', asked = ''] = /^(\S+)\s+(.+)$/s.exec(entry.trim()) ?? []
    return named.toLowerCase() === service ? [asked.toLowerCase()] : []
  })
  if (version === undefined) return 0
  if (version === 'latest') return newest
  const [, major, minor] = /^(\d+)\.(\d+)$/.exec(version) ?? []
  const shown = version.slice(0, 100)
  if (minor === undefined) throw new MicroversionError(400, `The microversion "${shown}" is not of the form 1.2.`)
  if (Number(major) !== 1 || Number(minor) > newest) {
    throw new MicroversionError(406, `The microversion ${shown} is not between 1.0 and 1.${newest}.`)
  }
  return Number(minor)
}
