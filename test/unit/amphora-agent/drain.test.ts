import t from 'tap'
import { closeUnchanged } from '../../../amphora-agent/haproxy/runtime/sessions.js'

t.test('draining does not close a new session that reuses the address of an ended one', async t => {
  const places = Array.from({ length: 50 }, (_, i) => `0x${(i + 1).toString(16)}`)
  const found = places.map(pointer => ({ pointer, backend: 'p:l', server: 'member-1' }))
  /** By then, four addresses belong to sessions of another member, and the second session has ended. */
  const open = new Map(places.map(place => [place, 'member-1']))
  const strangers = ['0x1', '0x14', '0x15', '0x32']
  for (const place of strangers) open.set(place, 'member-2')
  open.delete('0x2')
  const words = (place: string) =>
    open.has(place)
      ? `${place}: [22/Nov/2026:21:13:27.407902] id=0 proto=tcpv4\n  frontend=l (id=2 mode=http)\n` +
        `  backend=p:l (id=3 mode=http) addr=127.0.0.1:43106\n  server=${open.get(place)} (id=1) addr=127.0.0.1:9001`
      : 'Session not found.'
  let closed = 0
  const command = async (...commands: string[]) => {
    const answers = commands.map(text => {
      const [verb, , place = ''] = text.split(' ')
      if (verb === 'show') return words(place)
      closed += 1
      open.delete(place)
      return ''
    })
    return answers.join('\n\n')
  }
  await closeUnchanged({ command, isAborted: () => false }, found)
  t.same(
    [...open],
    strangers.map(place => [place, 'member-2']),
  )
  t.equal(closed, 45)
})
