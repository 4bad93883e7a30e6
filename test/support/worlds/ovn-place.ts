import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { type Inhabitant, inhabitNamespace } from './inhabitant.js'
import type { Krater } from './krater.js'
import type { Ending } from './tenant-machine.js'

/** A namespace on a network, with a program in it that serves on port 8080 and asks others. */
export type Place = Inhabitant & {
  name: string
  namespace: string
  v4: string
  v6: string
  /** Sends what is for an address by another one, which must be on the same network. */
  route: (to: string, by: string) => Promise<void>
}

const run = promisify(execFile)

/** Attaches it. It ends with `t`. @throws Error with the command's output when it fails */
export async function settle(
  t: Ending,
  { command, instance }: Pick<Krater, 'command' | 'instance'>,
  network: string,
  name: string,
): Promise<Place> {
  const { status, stdout, stderr } = await command('network', 'attach', network, name)
  if (status !== 0) throw new Error(stderr)
  const addresses = stdout.match(/[0-9a-f]+[.:][0-9a-f.:]+(?=[, ])/g) ?? []
  const namespace = `krater-${instance()}-${name}`
  const place = await inhabitNamespace(t, name, namespace)
  const [v4 = '', v6 = ''] = [addresses.find(one => !one.includes(':')), addresses.find(one => one.includes(':'))]
  const route = async (to: string, by: string): Promise<void> => {
    await run('ip', ['-n', namespace, 'route', 'replace', to, 'via', by])
  }
  return { ...place, name, namespace, v4, v6, route }
}
