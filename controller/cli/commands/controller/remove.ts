import { Argument, Option } from 'commander'
import { declareGone, goneSince } from '../../../hosts/move.js'
import { hostState, readHosts } from '../../../hosts/read-hosts.js'
import { forgetRemovedHosts, markRemoved, signOf } from '../../../hosts/registry.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { print } from '../../terminal.js'
import { withHosts } from './with-hosts.js'

const runs = (name: string) =>
  new OperatorError(`Processes of ${name} are running. Stop them first, with \`krater down\` on ${name}.`)

export const command: Command = {
  arguments: [new Argument('<name>', 'name of the controller host')],
  options: [
    new Option('--gone', 'its machine is off for good or for long: other hosts rebuild its load balancers at once'),
  ],
  run: (directory, { name, gone }: { name: string; gone?: boolean }) =>
    withHosts(directory, async (_instance, database) => {
      const host = (await readHosts(database)).find(one => one.name === name)
      if (host === undefined) {
        throw new OperatorError(`There is no controller host ${name}. \`krater controller list\` lists all.`)
      }
      if (hostState(host) === 'alive') {
        throw runs(name)
      }
      const carries = host.load_balancers + host.amphorae
      if (carries > 0 && hostState(host) !== 'gone' && gone !== true) {
        throw new OperatorError(
          `${name} has ${host.load_balancers} load balancers, whose amphorae may still serve. Turn its machine off, then run: krater controller remove --gone ${name}`,
        )
      }
      const isDeclared = await declareGone(database, host.id, await signOf(database, host.id))
      // A process may have started just now, or the host was gone before.
      if (!isDeclared && (await goneSince(database, host.id)) === null) throw runs(name)
      await markRemoved(database, host.id)
      await forgetRemovedHosts(database)
      print(
        carries === 0
          ? `Removed ${name}.`
          : `${name} is being removed: other hosts rebuild its load balancers. \`krater status\` shows when they are done.`,
      )
    }),
}
