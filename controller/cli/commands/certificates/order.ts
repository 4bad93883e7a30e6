import { Argument, Option } from 'commander'
import * as z from 'zod'
import { signInAsCaller } from '../../api-client.js'
import { awaitCertificate, placeOrder } from '../../certificates/order.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { print, visible } from '../../terminal.js'

const options = z.object({
  names: z.array(z.string()).default([]),
  ca: z.string().optional(),
  continue: z.string().optional(),
  timeout: z.coerce.number().int().min(1).max(86_400),
})

export const command: Command = {
  arguments: [new Argument('[names...]', 'host names and addresses; the first one is the common name')],
  options: [
    new Option('--ca <ca>', 'id, name or kind of the certificate authority, such as acme (default: the preferred one)'),
    new Option('--continue <order>', 'wait for an order that was placed before'),
    new Option('--timeout <seconds>', 'how long to wait for the certificate').default('300'),
  ],
  run: async (directory, given) => {
    const parsed = options.safeParse(given)
    if (!parsed.success) throw new OperatorError('--timeout must be a number of seconds from 1 to 86400.')
    const { names, ca = null, continue: former, timeout } = parsed.data
    const [first, ...others] = names
    if ((first === undefined) === (former === undefined)) {
      throw new OperatorError('Give the names of the certificate, or the order to wait for with --continue.')
    }
    const api = await signInAsCaller(directory)
    const path =
      first === undefined
        ? `/v1/orders/${encodeURIComponent(former ?? '')}`
        : await placeOrder(api, { names: [first, ...others], name: first, ca })
    const ref = await awaitCertificate(api, path, timeout, message => process.stderr.write(`${visible(message)}\n`))
    print(ref)
  },
}
