import t from 'tap'
import { judge, look, type Sighting, type Verdict, type Watch } from '../../../controller/hosts/judge.js'

const HOST = 'other'

/** What is seen at a second of a story: the other host's last sign of life, and when others last heard an amphora of it. */
type Scene = Partial<Omit<Sighting, 'id'>> & { isListening?: boolean; isUnseen?: boolean }

/** Plays a story with a look every two seconds. @returns the verdict after its last second */
function play(seconds: number, sceneAt: (second: number) => Scene | null): Verdict {
  let watch: Watch | null = null
  for (let second = 0; second <= seconds; second += 2) {
    const scene = sceneAt(second)
    if (scene === null) continue
    const { isListening = true, isUnseen = false, ...rest } = scene
    const sighting = { id: HOST, sign: `sign ${second}`, heard: `heard ${second}`, amphorae: 3, ...rest }
    watch = look(watch, { now: second * 1000, sightings: isUnseen ? [] : [sighting], isListening })
  }
  if (watch === null) throw new Error('The story has no look.')
  return judge(watch, HOST)
}

const SILENT = { sign: 'last', heard: 'last' }
const upTo = (end: number, second: number) => Math.min(end, second)

/** A story is told by what each second shows; null: nothing is seen, for the database or this process is away. */
const STORIES: readonly [
  title: string,
  verdict: Verdict,
  seconds: number,
  sceneAt: (second: number) => Scene | null,
][] = [
  ['it gives signs of life', 'alive', 120, () => ({})],
  ['it and its amphorae fall silent', 'gone', 30, () => SILENT],
  ['it and its amphorae have been silent for less than half a minute', 'alive', 28, () => SILENT],
  ['its processes are gone, and its amphorae are heard', 'slow', 300, second => ({ sign: 'last', heard: `${second}` })],
  ['its amphorae are silent, and it gives signs of life', 'alive', 300, () => ({ heard: 'last' })],
  [
    'its amphorae fall silent after its processes',
    'gone',
    60,
    second => ({ sign: 'last', heard: `${upTo(30, second)}` }),
  ],
  ['its amphorae fell silent a moment ago', 'slow', 58, second => ({ sign: 'last', heard: `${upTo(30, second)}` })],
  ['nobody ever heard its amphorae', 'slow', 300, () => ({ sign: 'last', heard: null })],
  ['it has no amphorae', 'gone', 30, () => ({ sign: 'last', heard: null, amphorae: 0 })],
  ['it was added and has never started', 'slow', 300, () => ({ sign: null, heard: null, amphorae: 0 })],
  ['nobody listens here', 'slow', 300, () => ({ ...SILENT, isListening: false })],
  ['somebody listens here again since a moment', 'slow', 60, second => ({ ...SILENT, isListening: second !== 40 })],
  ['the database was away all the time', 'alive', 60, second => (second === 0 || second === 60 ? SILENT : null)],
  ['the database was away until a moment ago', 'alive', 60, second => (second > 10 && second < 40 ? null : SILENT)],
  ['the database was away for eight seconds', 'gone', 60, second => (second > 10 && second < 18 ? null : SILENT)],
  ['it comes back', 'alive', 60, second => (second < 58 ? SILENT : {})],
  ['others have declared it gone already', 'slow', 60, () => ({ isUnseen: true })],
]

for (const [title, verdict, seconds, sceneAt] of STORIES) {
  t.test(`${verdict}: ${title}`, async t => t.equal(play(seconds, sceneAt), verdict))
}
