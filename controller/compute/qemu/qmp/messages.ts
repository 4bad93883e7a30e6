import * as z from 'zod'

/** What QEMU says on a monitor that speaks QMP (its "QEMU Machine Protocol"): a JSON object in each line. */
export type QmpMessage =
  | { kind: 'greeting'; version: string }
  | { kind: 'return'; id: number; value: unknown }
  | { kind: 'error'; id: number | null; class: string; description: string }
  | { kind: 'event'; name: string; data: Readonly<Record<string, unknown>> }

/** What came is not QMP, or more than a monitor says. Its sender cannot be trusted any more. */
export class QmpProtocolError extends Error {
  override readonly name = 'QmpProtocolError'
}

/** Of one conversation. The longest answer to Krater's questions has some ten thousand. */
const MAX_CHARACTERS = 1024 * 1024

const MAX_DESCRIPTION = 500

const number = z.number().int().nonnegative()
const id = z.number().int()
const messageSchema = z.union([
  z
    .object({
      QMP: z.object({ version: z.object({ qemu: z.object({ major: number, minor: number, micro: number }) }) }),
    })
    .transform(({ QMP: { version } }): QmpMessage => {
      const { major, minor, micro } = version.qemu
      return { kind: 'greeting', version: `${major}.${minor}.${micro}` }
    }),
  z
    .object({ return: z.unknown(), id })
    .refine(message => 'return' in message)
    .transform((message): QmpMessage => ({ kind: 'return', id: message.id, value: message.return })),
  z
    .object({ error: z.object({ class: z.string(), desc: z.string() }), id: id.optional() })
    .transform((message): QmpMessage => {
      const { class: name, desc } = message.error
      return { kind: 'error', id: message.id ?? null, class: name, description: desc.slice(0, MAX_DESCRIPTION) }
    }),
  z
    .object({ event: z.string(), data: z.record(z.string(), z.unknown()).optional() })
    .transform((message): QmpMessage => ({ kind: 'event', name: message.event, data: message.data ?? {} })),
])

/**
 * Reads a monitor's stream. A compromised QEMU must neither fill the controller's memory nor keep it busy: each piece is
 * looked at once, and all of them have a bound.
 * @returns a function that takes the next piece of it and returns the messages that are complete with it
 * @throws QmpProtocolError from that function
 */
export function createMessageReader(): (piece: string) => QmpMessage[] {
  let characters = 0
  let rest = ''
  return piece => {
    characters += piece.length
    if (characters > MAX_CHARACTERS) throw new QmpProtocolError('QEMU’s monitor says too much.')
    const [first = '', ...others] = piece.split('\n')
    const lines = [rest + first, ...others]
    rest = lines.pop() ?? ''
    return lines.filter(line => line.trim() !== '').map(parseMessage)
  }
}

/** @throws QmpProtocolError */
export function parseMessage(line: string): QmpMessage {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch {
    throw new QmpProtocolError(`QEMU’s monitor sends what is not JSON: ${excerpt(line)}`)
  }
  const parsed = messageSchema.safeParse(value)
  if (!parsed.success) throw new QmpProtocolError(`QEMU’s monitor sends what is not QMP: ${excerpt(line)}`)
  return parsed.data
}

const excerpt = (line: string): string => JSON.stringify(line.slice(0, 100))
