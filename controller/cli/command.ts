import type { Argument, Option } from 'commander'

/** A command's arguments, options and action. Its name and summary are in commands.ts. */
export type Command = {
  arguments?: readonly Argument[]
  options?: readonly Option[]
  /** Works without settings, so a wrong one does not stop it. */
  ignoresSettings?: true
  /**
   * @param directory the state directory
   * @param given arguments and options by name
   * @returns the exit status; nothing means 0
   */
  run(directory: string, given: Record<string, unknown>): Promise<number> | Promise<void>
}
