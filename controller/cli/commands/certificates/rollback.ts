import { Argument } from 'commander'
import { signInAsCaller } from '../../api-client.js'
import { describeIssued, openIssued } from '../../certificates/issued.js'
import type { Command } from '../../command.js'
import { print } from '../../terminal.js'

export const command: Command = {
  arguments: [
    new Argument('<reference>', 'reference or id of the container, as `krater certificates order` prints it'),
  ],
  run: async (directory, given) => {
    const certificate = openIssued(await signInAsCaller(directory), String(given.reference))
    await certificate.rollBack()
    print(`The former certificate is back: ${describeIssued(await certificate.read())}`)
  },
}
