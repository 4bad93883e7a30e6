import { badRequest } from '../../http/errors.js'
import type { ContainerType, NamedReference } from './container.js'

/** Required and optional names of references, by type of container; null allows any names. */
const NAMES: Readonly<Record<ContainerType, { required: readonly string[]; optional: readonly string[] } | null>> = {
  generic: null,
  certificate: { required: ['certificate', 'private_key'], optional: ['private_key_passphrase', 'intermediates'] },
  rsa: { required: ['public_key', 'private_key'], optional: ['private_key_passphrase'] },
}

/**
 * Checks the references of a new container. Pure.
 * @throws ApiError 400 for duplicate names (no name counts as one), and for unknown or missing names
 */
export function requireReferenceNames(type: ContainerType, references: readonly NamedReference[]): void {
  const names = references.map(({ name }) => name ?? '')
  const twice = names.find((name, index) => names.indexOf(name) !== index)
  if (twice !== undefined)
    throw badRequest(twice === '' ? 'Two references have no name.' : `Two references have the name "${twice}".`)
  const known = NAMES[type]
  if (known === null) return
  const unknown = names.find(name => !known.required.includes(name) && !known.optional.includes(name))
  if (unknown !== undefined)
    throw badRequest(
      `A container of type ${type} cannot have a reference called "${unknown}", only ${[...known.required, ...known.optional].join(', ')}.`,
    )
  const lacking = known.required.find(name => !names.includes(name))
  if (lacking !== undefined) throw badRequest(`A container of type ${type} needs a reference called "${lacking}".`)
}
