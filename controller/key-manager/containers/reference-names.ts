import { badRequest } from '../../http/errors.js'
import type { ContainerType, NamedReference } from './container.js'

/** What the references of a container of a type must be called, and what they may be called besides; null leaves it to the client. */
const NAMES: Readonly<Record<ContainerType, { required: readonly string[]; optional: readonly string[] } | null>> = {
  generic: null,
  certificate: { required: ['certificate', 'private_key'], optional: ['private_key_passphrase', 'intermediates'] },
  rsa: { required: ['public_key', 'private_key'], optional: ['private_key_passphrase'] },
}

/**
 * Whether references can make up a new container of a type. Pure.
 * @throws ApiError 400 for two of one name (without a name counts as one), and for names that the type does not have or lacks
 */
export function requireReferenceNames(type: ContainerType, references: readonly NamedReference[]): void {
  const names = references.map(({ name }) => name ?? '')
  const twice = names.find((name, index) => names.indexOf(name) !== index)
  if (twice !== undefined) throw badRequest(`Two references are called "${twice}".`)
  const known = NAMES[type]
  if (known === null) return
  const unknown = names.find(name => !known.required.includes(name) && !known.optional.includes(name))
  if (unknown !== undefined) throw badRequest(`A container of type ${type} has no reference called "${unknown}".`)
  const lacking = known.required.find(name => !names.includes(name))
  if (lacking !== undefined) throw badRequest(`A container of type ${type} needs a reference called "${lacking}".`)
}
