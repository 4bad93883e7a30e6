import { Argument, Option } from 'commander'
import type { Database } from '../../../database/connection.js'
import { declareGone, goneSince } from '../../../hosts/move.js'
import { hostState, readHosts } from '../../../hosts/read-hosts.js'
import { forgetRemovedHosts, markRemoved } from '../../../hosts/registry.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { readHostRecord } from '../../state-directory/host.js'
import { print } from '../../terminal.js'
import { withHosts } from './with-hosts.js'

export const command: Command = {
  arguments: [new Argument('<name>', 'name of the controller host')],
  options: [
    new Option('--gone', 'its machine is off for good or for long: other hosts rebuild its load balancers at once'),
  ],
  run: (directory, { name, gone }: { name: string; gone?: boolean }) =>
    withHosts(directory, async (_instance, database) =>
      print(await removeHost(database, { name, isOff: gone === true, self: readHostRecord(directory)?.id ?? null })),
    ),
}

const runs = (name: string) =>
  new OperatorError(`Processes of ${name} are running. Stop them first, with \`krater down\` on ${name}.`)

/**
 * Removes a controller host; safe to repeat.
 * @param isOff whether the operator says that its machine is off
 * @param self id of the host that removes it; null if this is none
 * @returns what became of it, as a sentence
 * @throws OperatorError
 */
export async function removeHost(
  database: Database,
  { name, isOff, self }: { name: string; isOff: boolean; self: string | null },
): Promise<string> {
  const named = (await readHosts(database)).filter(one => one.name === name)
  // One that was removed before, and still carries something, may have had the same name.
  const host = named.find(({ removed_at }) => removed_at === null) ?? named[0]
  if (host === undefined) {
    throw new OperatorError(`There is no controller host ${name}. \`krater controller list\` lists all.`)
  }
  if (host.id === self) {
    throw new OperatorError(
      `${name} is this host, and cannot remove itself. Run \`krater controller remove ${name}\` on another controller host; if there is none, \`krater down --all\` here removes all of Krater.`,
    )
  }
  if (hostState(host) === 'alive') throw runs(name)
  const carries = host.load_balancers + host.amphorae
  if (carries > 0 && hostState(host) !== 'gone' && !isOff) {
    throw new OperatorError(
      `${name} has ${host.load_balancers} load balancers, whose amphorae may still serve. Turn its machine off, then run: krater controller remove --gone ${name}`,
    )
  }
  const isDeclared = await declareGone(database, host.id, host.sign)
  // A process may have started just now, or the host was gone before.
  if (!isDeclared && (await goneSince(database, host.id)) === null) throw runs(name)
  if (!(await markRemoved(database, host.id))) {
    throw new OperatorError(`${name} has just come back, and was not removed. Turn its machine off, then try again.`)
  }
  await forgetRemovedHosts(database)
  return carries === 0
    ? `Removed ${name}.`
    : `${name} is being removed: other hosts rebuild its load balancers. \`krater status\` shows when they are done.`
}
