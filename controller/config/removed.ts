import { isRecord } from './is-record.js'

/** Settings of earlier versions, and what replaces them. */
const REMOVED = [
  {
    group: 'load_balancer',
    name: 'strict_roles',
    variable: 'KRATER_LOAD_BALANCER_STRICT_ROLES',
    instead: 'remove it; if it was true, set load_balancer.policy (KRATER_LOAD_BALANCER_POLICY) to new',
  },
]

export const removedVariables = REMOVED.map(({ variable }) => variable)

/** One sentence for each removed setting that a file or the environment still has. Ignoring it could grant rights. */
export function removedSettings(
  written: Record<string, unknown>,
  environment: NodeJS.ProcessEnv,
  file: string,
): string[] {
  return REMOVED.flatMap(({ group, name, variable, instead }) => {
    const values = written[group]
    const inFile = isRecord(values) && Object.hasOwn(values, name)
    const inEnvironment = (environment[variable] ?? '') !== ''
    return [
      ...(inFile ? [`${file}: ${group}.${name} no longer exists: ${instead}.`] : []),
      ...(inEnvironment ? [`${variable} no longer exists: ${instead}.`] : []),
    ]
  })
}
