import { Argument, Option } from 'commander'
import * as z from 'zod'
import { signInAsCaller } from '../../api-client.js'
import { awaitRenewal, describeIssued, openIssued } from '../../certificates/issued.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { print, visible } from '../../terminal.js'

const options = z.object({ reference: z.string(), timeout: z.coerce.number().int().min(1).max(86_400) })

export const command: Command = {
  arguments: [
    new Argument('<reference>', 'reference or id of the container, as `krater certificates order` prints it'),
  ],
  options: [new Option('--timeout <seconds>', 'how long to wait for the new certificate').default('300')],
  run: async (directory, given) => {
    const parsed = options.safeParse(given)
    if (!parsed.success) throw new OperatorError('--timeout must be a number of seconds from 1 to 86400.')
    const { reference, timeout } = parsed.data
    const report = (message: string) => process.stderr.write(`${visible(message)}\n`)
    const certificate = openIssued(await signInAsCaller(directory), reference)
    const before = await certificate.read()
    await certificate.renew()
    print(`Renewed: ${describeIssued(await awaitRenewal(certificate, before, timeout, report))}`)
  },
}
